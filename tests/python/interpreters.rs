//! Interpreters to read.

use std::path::Path;
use std::process::Command;

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

/// The system's, the one that `setup/python` finds or unpacks, and whatever `PYTHONS` names besides, between semicolons.
pub(crate) fn all() -> Vec<Interpreter> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fetched = output(Command::new(root.join("setup/python")).arg(root.join("target/python")));
    let mut all = vec![vec!["/usr/bin/python3".to_owned()]];
    all.push(fetched.lines().map(str::to_owned).collect());
    let named = std::env::var("PYTHONS").unwrap_or_default();
    let named = named.split(';').filter(|words| !words.is_empty());
    all.extend(named.map(|words| words.split(' ').map(str::to_owned).collect()));
    all.into_iter().map(Interpreter::new).collect()
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}
