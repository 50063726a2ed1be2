//! The one table of docs/numbers.md: each question, whoever answers it, what that costs and how right it is.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::answer::Answer;
use crate::cases::{Case, Contender, Maker};
use crate::measure::Sample;
use crate::table::{MIB, markdown, median};

/// Around the table.
const BEGIN: &str = "<!-- numbers: `make bench` writes what follows -->\n";
const END: &str = "<!-- end of numbers -->\n";

/// The table of those cases that are for it; medians.
pub(crate) fn table(results: &[(&Case, Vec<Vec<Sample>>)]) -> String {
    let head = [
        "question",
        "answered by",
        "ns per event",
        "load slower by",
        "start-up",
        "memory",
        "of the truth",
    ];
    let rows: Vec<_> = results
        .iter()
        .filter_map(|(case, rounds)| Some((case.question?, *case, rounds)))
        .flat_map(|(question, case, rounds)| {
            case.contenders
                .iter()
                .enumerate()
                .map(move |(side, contender)| {
                    let samples: Vec<_> = rounds.iter().map(|round| &round[side]).collect();
                    let question = if side == 0 { question } else { "" };
                    row(question, case, contender, &samples)
                })
        })
        .collect();
    markdown(head.map(str::to_owned), &rows)
}

fn row(question: &str, case: &Case, contender: &Contender, samples: &[&Sample]) -> [String; 7] {
    let cell = |value: &dyn Fn(&Sample) -> Option<f64>, unit: &str, decimals: usize| {
        let values: Vec<_> = samples.iter().filter_map(|sample| value(sample)).collect();
        median(values).map_or("-".to_owned(), |value| format!("{value:.decimals$}{unit}"))
    };
    let bpf = contender.maker.is_bpf();
    // A profiler does nothing when the load switches; its event is the sample.
    let cost = |sample: &Sample| match contender.answer {
        Answer::Samples => sample.ns_per_run(),
        _ => sample.ns_per_event(),
    };
    [
        question.to_owned(),
        who(case, contender),
        cell(&|sample| bpf.then(|| cost(sample)), "", 0),
        cell(&|sample| Some(sample.slow_down()), " %", 1),
        cell(
            &|sample| Some(sample.start_up?.as_secs_f64() * 1e3),
            " ms",
            0,
        ),
        cell(
            &|sample| Some((sample.peak_memory + sample.map_memory) as f64 / MIB),
            " MiB",
            0,
        ),
        cell(&|sample| Some(sample.right? * 100.0), " %", 1),
    ]
}

fn who(case: &Case, contender: &Contender) -> String {
    let program = case.program(contender.maker);
    match contender.maker {
        Maker::Ours => format!("**`{program}`**"),
        Maker::OursTogether => "its engines as tools, at once".to_owned(),
        Maker::LibbpfTools => format!("libbpf-tools `{program}`"),
        Maker::Bpftrace => "bpftrace, a script".to_owned(),
        Maker::Perf => {
            let words = contender
                .arguments
                .iter()
                .take_while(|word| !word.starts_with('-'));
            let words: Vec<&str> = [program].into_iter().chain(words.copied()).collect();
            format!("`{}`", words.join(" "))
        }
    }
}

/// Puts `table` between the marks in the file.
///
/// # Errors
///
/// Without the marks, or when the file cannot be read or written.
pub(crate) fn put_into(path: &Path, table: &str) -> Result<()> {
    let name = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(name)?;
    let begin = text.find(BEGIN).map(|at| at + BEGIN.len());
    let parts = begin.and_then(|begin| Some((begin, begin + text[begin..].find(END)?)));
    ensure!(parts.is_some(), "{} has no place for the numbers", name());
    let (begin, end) = parts.unwrap_or_default();
    fs::write(
        path,
        format!("{}\n{table}\n{}", &text[..begin], &text[end..]),
    )
    .with_context(name)
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, put_into};

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), format!("a\n{BEGIN}old\n{END}b\n")).expect("written");
        put_into(file.path(), "new\n").expect("marks are there");
        let text = std::fs::read_to_string(file.path()).expect("readable");
        assert_eq!(text, format!("a\n{BEGIN}\nnew\n\n{END}b\n"));
        std::fs::write(file.path(), "a\n").expect("written");
        put_into(file.path(), "new\n").expect_err("no marks");
    }
}
