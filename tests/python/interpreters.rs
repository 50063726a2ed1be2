//! Interpreters to read.

use std::path::Path;
use std::process::Command;

/// Series that are fetched, the one with the perf trampoline among them, and where below `target` they are.
const SERIES: [(Option<&str>, &str); 3] = [
    (Some("3.9"), "python-3.9"),
    (None, "python"),
    (Some("3.14"), "python-3.14"),
];

/// An interpreter, and what it says of its version.
pub(crate) struct Interpreter {
    pub(crate) words: Vec<String>,
    pub(crate) version: String,
}

impl Interpreter {
    fn new(words: Vec<String>) -> Self {
        let print = "import platform; print(platform.python_version())";
        let said = output(
            Command::new(&words[0])
                .args(&words[1..])
                .args(["-I", "-c", print]),
        );
        Self {
            words,
            version: said.trim().into(),
        }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg("-I");
        command
    }
}

/// The system's, those that `setup/python` finds or unpacks, and whatever `PYTHONS` names besides, between semicolons.
pub(crate) fn all() -> Vec<Interpreter> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The path is target/debug/deps/python-NUMBER.
    let program = std::env::current_exe().expect("this program");
    let target = program.ancestors().nth(3).expect("a directory");
    let fetched = SERIES.map(|(series, directory)| {
        let directory = target.join(directory);
        let mut script = Command::new(root.join("setup/python"));
        let words = output(script.arg(directory).args(series));
        words.lines().map(str::to_owned).collect()
    });
    let named = std::env::var("PYTHONS").unwrap_or_default();
    let named = named.split(';').filter(|words| !words.is_empty());
    let named = named.map(|words| words.split(' ').map(str::to_owned).collect());
    let system = vec!["/usr/bin/python3".to_owned()];
    let all = [system].into_iter().chain(fetched).chain(named);
    all.map(Interpreter::new).collect()
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}
