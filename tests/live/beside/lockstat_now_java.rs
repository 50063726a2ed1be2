//! `lockstat --now` on a program in Java whose threads wait for monitors for ever, and know whose.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::beside::interpreters::source;
use crate::beside::lockstat_now::{Stuck, told};
use crate::c_program::run;
use crate::prelude::*;

/// Threads that wait for each other, for one that sleeps, and for one of the first.
const RING: usize = 3;
const BEHIND: usize = 3;
const INNOCENT: usize = 1;

/// Ways in which objects and their classes are known.
const OPTIONS: [&str; 4] = [
    "-XX:+UseG1GC",
    "-XX:-UseCompressedClassPointers",
    "-XX:+UseZGC",
    "-XX:+UseCompactObjectHeaders",
];

/// Java's own virtual machine, and others that are there: what they say of themselves differs from release to release.
pub(crate) fn machines() -> Vec<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .flatten();
    let mut machines: Vec<PathBuf> = installed
        .map(|entry| entry.path().join("bin/java"))
        .filter(|path| path.exists())
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    machines.push(PathBuf::from("java"));
    machines.sort();
    machines.dedup();
    machines
}

/// A directory with the classes of one of the programs.
pub(crate) fn compiled(program: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let mut javac = Command::new("javac");
    run(javac
        .args(["--release", "17", "-d"])
        .arg(dir.path())
        .arg(source(&format!("{program}.java"))));
    dir
}

/// Such a program on a machine with these options, which machines pass over if they do not know them.
pub(crate) fn started(java: &Path, options: &str, classes: &Path, program: &str) -> Workload {
    let mut command = Command::new(java);
    command.args(["-Xlog:disable", "-XX:+IgnoreUnrecognizedVMOptions", options]);
    command.arg("-cp").arg(classes).arg(program);
    Workload::spawn("java", command)
}

/// Class and holder of every wait are as the program knows them, also of monitors that were taken without one, and nobody else waits for
/// a lock.
#[test]
fn monitors_of_java_have_holders_and_the_classes_of_their_objects() {
    let _machine = Machine::beside();
    let dir = compiled("Monitors");
    for java in machines() {
        for options in OPTIONS {
            let context = format!("{} {options}", java.display());
            let stuck = Stuck::of(started(&java, options, dir.path(), "Monitors"));
            let report = stuck.now();
            // The first thread of a process waits for the one that runs the program.
            let waits = list(&report, "waits").iter();
            let waits: Vec<&Value> = waits
                .filter(|wait| wait["class"] != "end of thread")
                .collect();
            assert_eq!(
                waits.len(),
                RING + BEHIND + INNOCENT,
                "{context}: {report:#}"
            );
            for wait in waits {
                let known = &stuck.known[&number(wait, "tid")];
                assert_eq!(wait["class"], "Java monitor", "{context}: {wait:#}");
                assert_eq!(wait["lock"], known["lock"], "{context}: {wait:#}");
                assert_eq!(wait["holder"]["kind"], "thread", "{context}: {wait:#}");
                assert_eq!(
                    wait["holder"]["tid"], known["holder"],
                    "{context}: {wait:#}"
                );
            }
            let deadlock = only(&report, "deadlocks");
            stuck.assert_circle(deadlock, RING);
            assert_eq!(
                ids(deadlock, "behind").len(),
                INNOCENT,
                "{context}: {report:#}"
            );
            let told = told(stuck.workload.pid());
            assert!(told.contains("DEADLOCK: 3 threads of process"), "{told}");
            assert!(told.contains("Java monitor of Monitors$Till"), "{told}");
        }
    }
}
