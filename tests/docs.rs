//! Man pages, examples and README say what the tools do.

mod links;
mod numbers;
mod pieces;
mod printed;
mod programs;
mod reasons;
mod tools;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::TOOLS;
use session::next::Step;
use session::symptoms::{self, SYMPTOMS, Symptom};

const SECTIONS: [&str; 12] = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "OPTIONS",
    "FIELDS",
    "EXAMPLES",
    "EXIT STATUS",
    "OVERHEAD",
    "CAVEATS",
    "REQUIREMENTS",
    "ENVIRONMENT",
    "SEE ALSO",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

fn help(program: &str) -> String {
    let output = Command::new(program)
        .arg("--help")
        .output()
        .expect("the tool runs");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// `--long` options of a text.
fn long_options(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    let starts = text
        .match_indices("--")
        .filter(|(at, _)| !text[..*at].ends_with(|c: char| is_name(c) || c == '-'));
    starts
        .map(|(at, _)| {
            text[at..]
                .chars()
                .take_while(|c| is_name(*c))
                .collect::<String>()
        })
        .filter(|option| option.len() > 3)
        .collect()
}

#[test]
fn man_pages_have_every_option_and_no_other() {
    for (tool, program) in TOOLS.iter().copied() {
        let page = read(&format!("man/{tool}.8")).replace("\\-", "-");
        let options = page
            .split(".SH OPTIONS")
            .nth(1)
            .and_then(|rest| rest.split(".SH FIELDS").next());
        assert_eq!(
            long_options(options.expect("a section")),
            long_options(&help(program)),
            "{tool}"
        );
    }
}

#[test]
fn man_pages_have_their_sections_in_order() {
    for (tool, _) in TOOLS.iter() {
        let page = read(&format!("man/{tool}.8"));
        let sections: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .collect();
        assert_eq!(sections, SECTIONS, "{tool}");
    }
}

/// What a tool says of older kernels (`--probe`), its man page says too.
#[test]
fn man_pages_say_what_happens_on_older_kernels() {
    let mut count = 0;
    for (tool, _) in TOOLS.iter() {
        let page = read(&format!("man/{tool}.8"))
            .replace("\\-", "-")
            .to_lowercase();
        let args = read(&format!("tools/{tool}/args.rs"));
        for need in args.split("without:").skip(1) {
            let without = need.split('"').nth(1).expect("a string").to_lowercase();
            assert!(page.contains(&without), "{tool}: {without}");
            count += 1;
        }
    }
    assert!(count >= 10, "only {count} needs");
}

#[test]
fn example_files_end_with_the_help_text() {
    for (tool, program) in TOOLS.iter().copied() {
        let examples = read(&format!("man/{tool}_example.txt"));
        assert!(
            examples.trim_end().ends_with(help(program).trim_end()),
            "man/{tool}_example.txt is behind --help"
        );
    }
}

/// Words as a shell sees them, where only single quotes are used.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(
                part.split_whitespace()
                    .map(|word| word.replace("PID", "1").replace("CULPRIT", "1")),
            );
        }
    }
    words
}

/// Command lines of a text that start with a tool's name.
fn commands(text: &str) -> impl Iterator<Item = (&'static str, Vec<String>)> + '_ {
    text.lines().filter_map(|line| {
        let line = line
            .trim()
            .trim_start_matches("# ")
            .trim_start_matches("sudo ")
            .trim_start_matches(".B ");
        let (tool, program) = TOOLS
            .iter()
            .copied()
            .find(|(tool, _)| line.split_whitespace().next() == Some(tool))?;
        let line = line
            .strip_prefix(tool)?
            .replace("\\(aq", "'")
            .split(['#', '>', '|', '('])
            .next()?
            .replace("\\-", "-");
        Some((program, shell_words(&line)))
    })
}

fn assert_parses(program: &str, mut words: Vec<String>) {
    // Flags are checked before --help is obeyed; what follows -- is the command's own.
    let end = words.iter().position(|word| word == "--");
    words.truncate(end.unwrap_or(words.len()));
    words.push("--help".into());
    let output = Command::new(program).args(&words).output();
    let output = output.expect("the tool runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{program} {words:?}: {stderr}"
    );
}

#[test]
fn commands_of_the_readme_and_the_guide_parse() {
    let mut count = 0;
    for page in ["README.md", "docs/guide.md"] {
        let text = read(page);
        // Blocks and words between back quotes.
        for code in text.split('`').skip(1).step_by(2) {
            for (program, words) in commands(code).filter(|(_, words)| !words.is_empty()) {
                assert_parses(program, words);
                count += 1;
            }
        }
    }
    assert!(count > 25, "only {count} commands found");
}

#[test]
fn documented_commands_parse() {
    let mut count = 0;
    for (tool, program) in TOOLS.iter().copied() {
        let help = help(program);
        for (program, words) in commands(&help).chain(commands(&read(&format!("man/{tool}.8")))) {
            // Prose may begin with the tool's name, too.
            if words.first().is_some_and(|word| {
                word == "-" || word.chars().next().is_some_and(char::is_alphabetic)
            }) {
                continue;
            }
            assert_parses(program, words);
            count += 1;
        }
    }
    assert!(count >= 15, "only {count} commands found");
    let stale = Command::new(TOOLS[0].1)
        .args(["--stale-flag", "--help"])
        .output()
        .expect("the tool runs");
    assert_eq!(stale.status.code(), Some(2), "a stale flag must not pass");
}

#[test]
fn the_readme_has_a_row_for_each_tool() {
    let readme = read("README.md");
    for (tool, _) in TOOLS.iter() {
        assert!(
            readme
                .lines()
                .any(|line| line.starts_with(&format!("| `{tool}`"))),
            "{tool}"
        );
    }
    assert!(!readme.contains("<!-- output"), "an output is missing");
    let lines = readme.lines().count();
    assert!(lines <= 150, "{lines} lines are more than a minute's");
}

/// The table by symptom as the README has it.
fn readme_table() -> String {
    let mut text = String::from("| symptom | command | reading | trap |\n|---|---|---|---|\n");
    for row in SYMPTOMS.iter() {
        let cells = [row.symptom, row.command, row.reading, row.trap];
        for (cell, limit) in cells.iter().zip([45, 50, 110, 72]) {
            assert!(
                cell.len() <= limit,
                "nobody reads so much in a cell: {cell}"
            );
        }
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// The same in the language of manual pages.
fn manual_table() -> String {
    let troff = |text: &str| {
        let text = text.replace("[guide](docs/guide.md#interpreters-and-jit)", "guide");
        let parts: Vec<&str> = text.split('`').collect();
        let mut line = String::new();
        for (at, part) in parts.iter().enumerate() {
            let part = part.replace('-', "\\-").replace('\'', "\\(aq");
            line += &match at % 2 {
                1 => format!("\\fB{part}\\fR"),
                _ => part,
            };
        }
        line
    };
    let mut text = String::new();
    for row in SYMPTOMS.iter() {
        text += &format!(".TP\n.B {}\n", troff(row.symptom));
        if !row.command.is_empty() {
            text += &format!("{}\n.br\n", troff(row.command));
        }
        text += &format!("{}\n.br\nTrap: {}\n", troff(row.reading), troff(row.trap));
    }
    text
}

#[test]
fn messages_that_the_manual_explains_are_those_of_the_tools() {
    let page = read("man/usekit.7");
    let section = page.split("\n.SH TROUBLESHOOTING\n").nth(1);
    let section = section.and_then(|rest| rest.split("\n.SH ").next());
    let titles = section.expect("a section").split(".TP\n.B ").skip(1);
    // Others are in words of the manual's own.
    let messages = titles.filter(|title| title.starts_with(char::is_lowercase));
    let messages: Vec<&str> = messages.filter_map(|title| title.lines().next()).collect();
    let sources = sources(&["common", "tools"]);
    for message in &messages {
        // The part behind a colon is of one case.
        let fixed = message.split_inclusive(": ").next().unwrap_or(message);
        assert!(sources.contains(fixed), "usekit.7: no tool says {message}");
    }
    assert!(messages.len() >= 5, "{messages:?}");
}

/// One table: what README, manual and tools say of a symptom is the same, row by row.
#[test]
fn readme_and_manual_have_the_table_by_symptom() {
    let readme = read("README.md");
    let after = readme.split("\n## By symptom\n\n").nth(1).expect("a table");
    let table = after.split("\n\n").next().expect("its end");
    assert_eq!(table.trim_end(), readme_table().trim_end(), "README.md");
    let page = read("man/usekit.7");
    let after = page.split(".SH BY SYMPTOM\n").nth(1).expect("a table");
    let table = after.split(".SH ").next().expect("its end");
    assert_eq!(table, manual_table(), "man/usekit.7");
}

#[test]
fn commands_of_the_table_and_of_next_parse() {
    let mut count = 0;
    let mut check = |words: &[String]| {
        let tool = TOOLS.iter().find(|(tool, _)| words[0] == *tool);
        if let Some((_, program)) = tool.filter(|_| words.len() > 1) {
            assert_parses(program, words[1..].to_vec());
            count += 1;
        }
    };
    for row in SYMPTOMS.iter().flat_map(Symptom::commands) {
        let line = row.join(" ").replace("DISK", "vda").replace("PATH", "/");
        check(&shell_words(&line));
    }
    for step in Step::ALL {
        let target = match step {
            Step::Disks => "-d vda",
            Step::Failures => "ENOENT",
            Step::Groups | Step::Shortages => "",
            _ => "-p 1",
        };
        let command = step.command(target);
        assert!(symptoms::has(&command), "no symptom has {command}");
        check(&shell_words(&command));
    }
    assert!(count >= 45, "only {count} commands");
}

/// Reports name commands by their step or, where one says it otherwise, with options that the table has.
#[test]
fn no_report_spells_out_a_command_that_the_table_lacks() {
    let mut count = 0;
    let mut tools = files(&["tools"], &["rs"]);
    // flame's are its own: its tests run them.
    tools.retain(|(path, _)| path.iter().all(|part| part != "flame"));
    let text: String = tools.into_iter().map(|(_, text)| text).collect();
    for call in text.split("next::line(").skip(1) {
        let literal = call.split('"').nth(1).unwrap_or_default();
        let is_command = call.trim_start().starts_with('"');
        assert!(!is_command || symptoms::has(literal), "{literal}");
        count += 1;
    }
    assert!(count < 12, "{count}: these are steps");
}

/// Every source below these directories, as one text.
fn sources(dirs: &[&str]) -> String {
    let files = files(dirs, &["rs"]).into_iter();
    files.map(|(_, text)| text).collect()
}

/// Files below directories that end so.
fn files(dirs: &[&str], endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut left: Vec<PathBuf> = dirs.iter().map(|dir| root().join(dir)).collect();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory").flatten();
            left.extend(entries.map(|entry| entry.path()));
        } else if endings
            .iter()
            .any(|ending| path.extension().is_some_and(|own| own == *ending))
        {
            let text = fs::read_to_string(&path).expect("UTF-8");
            files.push((path, text));
        }
    }
    files
}

#[test]
fn tests_and_files_that_the_tests_readme_names_exist() {
    let readme = read("tests/README.md");
    let tables = readme.lines().filter(|line| line.starts_with('|'));
    let sources = sources(&["tests", "common", "tools"]);
    let mut count = 0;
    for name in tables.flat_map(|line| line.split('`').skip(1).step_by(2)) {
        if name.contains('_') && !name.contains(['/', '=']) && name.to_lowercase() == name {
            assert!(sources.contains(&format!("fn {name}(")), "no test {name}");
            count += 1;
        } else if name.contains('/') && !name.contains(['*', ' ']) && !name.contains("TOOL") {
            assert!(root().join(name).exists(), "no file {name}");
        }
    }
    assert!(count >= 40, "only {count} tests named");
}
