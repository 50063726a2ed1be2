//! The results as Markdown.

use std::fmt::Write;

use crate::Args;
use crate::measure::Run;
use crate::tasks::Task;

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn header(args: &Args) -> String {
    let run = |program: &str, args: &[&str]| {
        let output = std::process::Command::new(program).args(args).output().ok();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.filter(|text| !text.is_empty())
            .unwrap_or_else(|| "?".into())
    };
    format!(
        "# flame and others, reading and drawing files\n\n{}; Linux {}, {} CPUs; {}; {}.\n\
         {}, in turns; memory is the largest resident size. Generated files have 20,000 different\n\
         stacks of 12 to 51 frames, of up to 65,536 functions. The three ratios are theirs / flame's: above 1 flame is faster, or smaller.\n\
         Where others work on the machine too, CPU seconds (user and system) say more than seconds.\n",
        run("date", &["-u", "+%F %H:%M UTC"]),
        run("uname", &["-r"]),
        run("nproc", &[]),
        version_of_inferno(args),
        run("go", &["version"]),
        match args.rounds {
            1 => "Each ran once".to_owned(),
            rounds => format!("Cells are the medians of {rounds} rounds"),
        },
    )
}

/// Its programs do not say; cargo's list beside them does, as `"inferno 0.12.8 (…`.
fn version_of_inferno(args: &Args) -> String {
    let list = args.inferno_dir.join("../.crates.toml");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    let version = list
        .split_once("\"inferno ")
        .and_then(|(_, rest)| rest.split(' ').next());
    format!("inferno {}", version.unwrap_or("of unknown version"))
}

/// A task's table.
pub(crate) fn table(task: &Task, measured: &[Vec<Run>]) -> String {
    let mut text = format!("\n## {}\n\n", task.title);
    let medians: Vec<[f64; 3]> = measured
        .iter()
        .map(|runs| {
            [
                |run: &Run| run.seconds,
                |run: &Run| run.cpu_seconds,
                |run: &Run| run.peak as f64 / MIB,
            ]
            .map(|value| median(runs.iter().map(value)))
        })
        .collect();
    text += "| program | seconds | CPU seconds | peak MiB | time | CPU | memory | output |\n";
    text += "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
    for (at, (side, [seconds, cpu, peak])) in task.sides.iter().zip(&medians).enumerate() {
        let ratio = |column: usize| match at {
            0 => String::new(),
            _ => format!("{:.2}", medians[at][column] / medians[0][column]),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {seconds:.2} | {cpu:.2} | {peak:.0} | {} | {} | {} | {} |",
            side.name,
            ratio(0),
            ratio(1),
            ratio(2),
            side.verdict.borrow(),
        );
    }
    text
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}
