//! Symptom, command, reading, trap: the table of `symptoms.txt`.

use std::sync::LazyLock;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Symptom {
    /// Complaint of a user.
    pub symptom: &'static str,
    /// Command that looks first. PID, PATH and the like stand for what the reader knows; empty: none of ours.
    pub command: &'static str,
    /// Sense of what it prints, and the commands that follow.
    pub reading: &'static str,
    /// Mistake that is easily made.
    pub trap: &'static str,
}

impl Symptom {
    /// `None`: it has not four lines.
    fn parse(paragraph: &'static str) -> Option<Self> {
        let lines: Vec<&str> = paragraph.lines().map(str::trim_start).collect();
        let [symptom, command, reading, trap] = lines[..] else {
            return None;
        };
        Some(Self {
            symptom,
            command: command.trim_start_matches('-'),
            reading,
            trap,
        })
    }

    /// Commands of this project in the row, without `sudo`: words, of which the first is the tool.
    pub fn commands(&self) -> impl Iterator<Item = Vec<&'static str>> + use<> {
        let texts = [self.command, self.reading, self.trap];
        let codes = texts
            .into_iter()
            .flat_map(|text| text.split('`').skip(1).step_by(2));
        codes.map(|code| {
            let words = code.split_whitespace();
            words.skip_while(|word| *word == "sudo").collect()
        })
    }
}

/// Options that mean the same in every tool, and need no row.
const TARGETS: [&str; 4] = ["-p", "-t", "--comm", "--cgroup"];

/// Looks whether the table has a command's tool, and that tool's options.
pub fn has(command: &str) -> bool {
    let options = |words: &[&str]| -> Vec<String> {
        let own = words.iter().take_while(|word| **word != "--");
        let options = own.filter(|word| word.starts_with('-'));
        options.map(|&word| word.to_owned()).collect()
    };
    let words: Vec<&str> = command.split_whitespace().collect();
    let Some(tool) = words.first() else {
        return false;
    };
    let mut of_tool = SYMPTOMS
        .iter()
        .flat_map(Symptom::commands)
        .filter(|row| row.first() == Some(tool))
        .peekable();
    let is_there = of_tool.peek().is_some();
    let known: Vec<String> = of_tool.flat_map(|row| options(&row)).collect();
    let mut wanted = options(&words[1..]).into_iter();
    is_there && wanted.all(|option| TARGETS.contains(&&*option) || known.contains(&option))
}

/// All rows, in the order of the documents.
pub static SYMPTOMS: LazyLock<Vec<Symptom>> = LazyLock::new(|| {
    let paragraphs = include_str!("symptoms.txt").split("\n\n");
    let rows = paragraphs.filter(|paragraph| !paragraph.starts_with('#'));
    let rows = rows.map(Symptom::parse);
    rows.collect::<Option<_>>().expect("a test reads the table")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_and_its_options_are_looked_up_together() {
        assert!(has("lockstat --now -p 7"));
        assert!(has("profile --comm cc1 10"));
        assert!(has("offcputime -- make --no-such-option"));
        assert!(!has("biolatency --now 1"), "an option of another tool");
        assert!(!has("make 10") && !has(""));
    }
}
