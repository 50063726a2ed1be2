//! The man page and the examples say what `--help` says.

use std::collections::BTreeSet;
use std::path::Path;

use crate::flame;

const COMMANDS: [&str; 9] = [
    "draw", "diff", "top", "peek", "filter", "merge", "convert", "heat", "gate",
];

const COMMON: [&str; 6] = ["--help", "--unit", "--value", "--event", "--from", "--to"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

fn long_options(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
    words
        .filter(|word| word.starts_with("--") && word.len() > 3)
        .map(String::from)
        .collect()
}

#[test]
fn the_man_page_has_every_command_with_its_options() {
    let page = read("man/flame.1").replace("\\-", "-");
    for command in COMMANDS {
        let section = page
            .split(&format!(".SS {command}"))
            .nth(1)
            .unwrap_or_else(|| panic!("no section for {command}"));
        let section = section.split("\n.S").next().unwrap_or_default();
        let mut options = long_options(&flame(format!("{command} --help"), "").ok());
        for common in COMMON {
            options.remove(common);
        }
        let missing: Vec<&String> = options
            .iter()
            .filter(|option| !long_options(section).contains(*option))
            .collect();
        assert!(missing.is_empty(), "{command}: {missing:?}");
        // Prose may name those that all commands have.
        let stale: Vec<String> = long_options(section)
            .into_iter()
            .filter(|option| !options.contains(option) && !COMMON.contains(&option.as_str()))
            .collect();
        assert!(stale.is_empty(), "{command}: {stale:?}");
    }
}

#[test]
fn help_fits_a_terminal_and_the_examples_end_with_it() {
    let help = flame("--help", "").ok();
    assert!(
        read("man/flame_example.txt")
            .trim_end()
            .ends_with(help.trim_end()),
        "man/flame_example.txt is behind --help"
    );
    for command in COMMANDS {
        for line in flame(format!("{command} --help"), "")
            .ok()
            .lines()
            .chain(help.lines())
        {
            assert!(line.chars().count() <= 80, "{command}: {line}");
        }
    }
    assert!(
        read("README.md")
            .lines()
            .any(|line| line.starts_with("| `flame`"))
    );
}
