//! What has become of the mutants: a line of JSON for each, and a summary.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::judge::Verdict;
use crate::mutation::{Kind, Mutation};

#[derive(Serialize)]
pub(crate) struct Entry {
    pub(crate) seed: u64,
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) diff: String,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    pub(crate) seconds: f64,
}

pub(crate) struct Ledger {
    file: File,
    entries: Vec<Entry>,
}

impl Ledger {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(path);
        Ok(Self {
            file: file.with_context(|| format!("open {}", path.display()))?,
            entries: Vec::new(),
        })
    }

    /// Mutants so far.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn add(&mut self, entry: Entry) -> Result<()> {
        let mut line = serde_json::to_string(&entry)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        if matches!(entry.verdict, Verdict::NoMutant | Verdict::NotTried) {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let fate = match &entry.verdict {
            Verdict::Killed { stage, by } => format!("killed, {stage}: {by}"),
            _ => "SURVIVED".to_owned(),
        };
        let Entry {
            file,
            line,
            kind,
            seconds,
            ..
        } = &entry;
        writeln!(out, "{file}:{line} {kind:?} {seconds:.1} s: {fate}")?;
        self.entries.push(entry);
        Ok(())
    }

    pub(crate) fn is_enough(&self, least: f64) -> bool {
        let killed = self.entries.len() - self.survivors().count();
        killed as f64 >= least * self.entries.len() as f64
    }

    fn survivors(&self) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(|it| it.verdict == Verdict::Survived)
    }

    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        let mut stages = BTreeMap::<&str, usize>::new();
        for entry in &self.entries {
            if let Verdict::Killed { stage, .. } = &entry.verdict {
                *stages.entry(stage).or_default() += 1;
            }
        }
        for entry in self.survivors() {
            let Entry {
                file,
                line,
                kind,
                diff,
                ..
            } = entry;
            let _ = write!(text, "\n{file}:{line} {kind:?} survived\n{diff}");
        }
        let killed: usize = stages.values().sum();
        let _ = write!(text, "\n{killed} of {} mutants killed", self.entries.len());
        for (stage, number) in stages {
            let _ = write!(text, ", {number} by {stage} tests");
        }
        text.push('\n');
        text
    }
}

/// The lines that a mutation changes, as a diff has them.
pub(crate) fn diff(mutation: &Mutation, text: &str) -> String {
    let start = text[..mutation.at.start].rfind('\n').map_or(0, |it| it + 1);
    let end = text[mutation.at.end..]
        .find('\n')
        .map_or(text.len(), |it| mutation.at.end + it);
    let before = &text[start..end];
    let (left, right) = (&text[start..mutation.at.start], &text[mutation.at.end..end]);
    let after = format!("{left}{}{right}", mutation.instead);
    let signed = |sign: char, lines: &str| -> String {
        lines.lines().fold(String::new(), |mut all, line| {
            let _ = writeln!(all, "{sign}{line}");
            all
        })
    };
    signed('-', before) + &signed('+', &after)
}
