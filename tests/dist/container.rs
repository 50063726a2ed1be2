//! The image of setup/Containerfile: its root file system, in namespaces, tells the truth of a program outside.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::userland::{Userland, run, staged};
use crate::{HERTZ, value_of};

struct Image {
    root: Userland,
    /// Words such as `PATH=/bin`.
    environment: Vec<String>,
    entry: Vec<String>,
}

impl Image {
    /// Does what the recipe says, as far as recipes of ours go.
    fn build() -> Self {
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../setup/Containerfile");
        let recipe = fs::read_to_string(recipe).expect("the recipe");
        let mut image = Self {
            root: Userland::new(),
            environment: Vec::new(),
            entry: Vec::new(),
        };
        for line in recipe.lines().filter(|line| !line.starts_with('#')) {
            let (instruction, words) = line.split_once(' ').expect("an instruction");
            let list: Vec<&str> = words.split(' ').collect();
            match (instruction, list.as_slice()) {
                ("FROM", ["scratch"]) => {}
                ("COPY", [from @ .., to]) => image.copy(from, to),
                ("ENV", [word]) => image.environment.push((*word).to_owned()),
                ("ENTRYPOINT", _) => image.entry = serde_json::from_str(words).expect("JSON"),
                _ => panic!("{line}"),
            }
        }
        image
    }

    /// A directory's entries, or files into a directory; links stay links.
    fn copy(&self, from: &[&str], to: &str) {
        let to = self.root.path(to);
        fs::create_dir_all(&to).expect("a new directory");
        for from in from {
            let mut from = staged().join(from);
            if from.is_dir() {
                from.push(".");
            }
            run(Command::new("cp").arg("-a").arg(from).arg(&to));
        }
    }

    /// Namespaces of `docker run --privileged --pid=host --cgroupns=host`: its own of all else.
    fn command(&self, words: &[&str]) -> Command {
        let script = "mount -t proc proc \"$0/proc\" && mount -t sysfs sysfs \"$0/sys\" && \
                      exec env -i \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--uts", "--ipc", "--net", "sh", "-c", script]);
        let root = self.root.path("/");
        command.arg(&root).args(&self.environment);
        command.arg("/usr/sbin/chroot").arg(&root);
        command.args(&self.entry).args(words);
        command
    }

    fn folded(&self, words: &[&str]) -> String {
        let output = run(&mut self.command(words));
        String::from_utf8(output.stdout).expect("text")
    }
}

/// Killed at the end.
struct Outside(Child);

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_image_traces_what_is_outside() {
    let image = Image::build();
    let listed = run(&mut image.command(&[]));
    assert!(String::from_utf8_lossy(&listed.stdout).contains("offcputime"));

    let outside = Userland::new();
    outside.compile("cc", &[]);
    let mut program = Command::new(outside.path("/program"));
    program.arg("again").stdout(Stdio::null());
    let program = Outside(program.spawn().expect("it runs"));
    let pid = program.0.id().to_string();

    let hertz = HERTZ.to_string();
    let folded = image.folded(&["profile", "-f", "-F", &hertz, "-p", &pid, "5"]);
    let (samples, all) = (value_of(&folded, &["burns", "hot"]), value_of(&folded, &[]));
    assert!(
        samples >= 20 && samples >= all / 10 * 9,
        "{samples} of {all} samples:\n{folded}"
    );
    // Long enough for one nap of 1 ms on a machine that has much else to do.
    let folded = image.folded(&["offcputime", "-f", "-p", &pid, "5"]);
    let naps_us = value_of(&folded, &["naps"]);
    assert!(naps_us >= 1000, "{naps_us} us:\n{folded}");
}
