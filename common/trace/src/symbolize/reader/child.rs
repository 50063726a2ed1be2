//! The reading process: it has no file system, hardly any rights and a bounded heap, and answers questions until its
//! socket closes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Resource, chdir, chroot};

use super::super::elf;
use super::super::elfnames::ElfNames;
use super::super::minidebug::unpacks_within;
use super::answer::{Answer, Question};
use crate::forked::limit;
use crate::privileges::{Capabilities, keep_only};
use crate::{procs, wire};

/// How the process is to be.
pub(super) struct Terms {
    pub(super) inline: bool,
    /// Bytes of heap beyond what it inherits.
    pub(super) heap: u64,
}

/// Runs in the child to its end.
pub(super) fn run(socket: &UnixStream, terms: &Terms) -> io::Result<()> {
    let descriptors = confine(terms)?;
    serve(socket, ElfNames::new(terms.inline), descriptors)
}

/// Takes away what reading does not need; returns the path under which open descriptors are found.
fn confine(terms: &Terms) -> io::Result<&'static str> {
    // Counted at present: the parent's heap.
    let data = procs::bytes(&procs::own_status(), "VmData:").unwrap_or(0);
    limit(Resource::Data, data.saturating_add(terms.heap))?;
    // Should memory run out all the same, this process is the one to go.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    // Its own directory of /proc is all that it sees: names in files lead nowhere.
    let shut_in = chroot(c"/proc/self").and_then(|()| chdir(c"/")).is_ok();
    // Opening a descriptor again asks for the permission once more.
    keep_only(Capabilities::DAC_READ_SEARCH)?;
    Ok(if shut_in { "/fd" } else { "/proc/self/fd" })
}

fn serve(socket: &UnixStream, mut names: ElfNames, descriptors: &str) -> io::Result<()> {
    let mut files = HashMap::new();
    while let Some(message) = wire::next(socket, true)? {
        let question: Question = message.read()?;
        if let Some(file) = message.file {
            let harmless = is_harmless(&file);
            files.insert(question.file, harmless.then_some(file));
        }
        let found = files.get(&question.file).and_then(|file| {
            let path = format!("{descriptors}/{}", file.as_ref()?.as_raw_fd());
            names.resolve(&path, question.dwarf, &question.addresses)
        });
        wire::send(socket, &found.map_or(Answer::Refused, Answer::of), None)?;
    }
    Ok(())
}

/// Whether `.gnu_debugdata`, if there is one, unpacks to something reasonable: the library has no limit of its own. What
/// slips through ends this process.
fn is_harmless(file: &File) -> bool {
    let Some(headers) = elf::read(file) else {
        return false;
    };
    headers
        .mini_debug
        .is_none_or(|range| unpacks_within(file, range))
}
