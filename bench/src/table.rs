//! The results as Markdown that reads well in a terminal too.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::cases::{Case, Maker};
use crate::measure::Sample;
use crate::stats::Program;

/// A row: its name, in which EVENT is the load's, and how a sample answers it.
struct Metric {
    name: &'static str,
    value: fn(&Sample) -> f64,
    decimals: usize,
}

pub(crate) const MIB: f64 = 1024.0 * 1024.0;

const METRICS: [Metric; 7] = [
    Metric {
        name: "BPF ns per EVENT",
        value: Sample::ns_per_event,
        decimals: 0,
    },
    Metric {
        name: "BPF ns per program run",
        value: Sample::ns_per_run,
        decimals: 0,
    },
    Metric {
        name: "added ns per EVENT of the load",
        value: Sample::added_ns,
        decimals: 0,
    },
    Metric {
        name: "slow-down of the load, %",
        value: Sample::slow_down,
        decimals: 1,
    },
    Metric {
        name: "start-up, ms",
        value: |sample| {
            sample
                .start_up
                .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        },
        decimals: 0,
    },
    Metric {
        name: "peak memory, MiB",
        value: |sample| sample.peak_memory as f64 / MIB,
        decimals: 1,
    },
    Metric {
        name: "BPF maps, MiB",
        value: |sample| sample.map_memory as f64 / MIB,
        decimals: 1,
    },
];

/// The tables of one case: ours beside libbpf-tools, then the programs behind it.
pub(crate) fn of_case(case: &Case, rounds: &[Vec<Sample>]) -> String {
    let theirs = case
        .contenders
        .iter()
        .position(|contender| contender.maker == Maker::LibbpfTools);
    let Some(theirs) = theirs else {
        return String::new();
    };
    let sides = [0, theirs];
    let rows = METRICS.iter().map(|metric| {
        let value = |round: &Vec<Sample>, side: usize| (metric.value)(&round[side]);
        let side = |i| rounds.iter().map(|round| value(round, i)).collect();
        let ratios = rounds
            .iter()
            .map(|round| value(round, 0) / value(round, theirs));
        [
            metric.name.replace("EVENT", case.load.event()),
            spread(side(0), metric.decimals),
            spread(side(theirs), metric.decimals),
            spread(ratios.collect(), 2),
        ]
    });
    let [ours, others] = sides.map(|side| &case.contenders[side]);
    let comparison = markdown(
        ["", ours.maker.name(), others.maker.name(), "ratio"].map(str::to_owned),
        &rows.collect::<Vec<_>>(),
    );
    let programs = markdown(
        [
            "program",
            "whose",
            &format!("runs per {}", case.load.event()),
            "ns per run",
        ]
        .map(str::to_owned),
        &sides
            .into_iter()
            .flat_map(|side| {
                let samples = rounds.iter().map(move |round| &round[side]);
                program_rows(samples, case.contenders[side].maker)
            })
            .collect::<Vec<_>>(),
    );
    let [ours, others] = [ours, others].map(|contender| {
        format!(
            "`{} {}`",
            case.program(contender.maker),
            contender.arguments.join(" ")
        )
    });
    format!(
        "## {}\n\n{ours} against {others}\n\n{comparison}\n{programs}\n",
        case.name,
    )
}

/// One row per program, summed over the rounds; those that hardly run are left out.
fn program_rows<'a>(samples: impl Iterator<Item = &'a Sample>, maker: Maker) -> Vec<[String; 4]> {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut events = 0;
    for sample in samples {
        events += sample.events;
        for Program {
            name,
            run_time_ns,
            runs,
        } in &sample.programs
        {
            let sum = sums.entry(name).or_default();
            *sum = (sum.0 + runs, sum.1 + run_time_ns);
        }
    }
    let row = |(name, (runs, ns)): (&str, (u64, u64))| {
        let per_event = runs as f64 / events as f64;
        let per_run = ns as f64 / runs as f64;
        let cells = [name, maker.name()].map(str::to_owned);
        let [name, whose] = cells;
        (per_event >= 0.005).then(|| {
            [
                format!("`{name}`"),
                whose,
                format!("{per_event:.2}"),
                format!("{per_run:.0}"),
            ]
        })
    };
    sums.into_iter().filter_map(row).collect()
}

/// `min – **median** – max`.
pub(crate) fn spread(values: Vec<f64>, decimals: usize) -> String {
    let (Some(min), Some(max)) = (
        values.iter().copied().min_by(f64::total_cmp),
        values.iter().copied().max_by(f64::total_cmp),
    ) else {
        return String::new();
    };
    let median = median(values).unwrap_or_default();
    format!("{min:.decimals$} – **{median:.decimals$}** – {max:.decimals$}")
}

/// Between the two in the middle when they are even in number.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        return values.get(middle).copied();
    }
    Some(f64::midpoint(
        *values.get(middle.checked_sub(1)?)?,
        values[middle],
    ))
}

/// Pads the columns, so that the source is a table to the eye.
pub(crate) fn markdown<const N: usize>(head: [String; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .chain([&head])
            .map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let mut text = String::new();
    let mut line = |cells: &[String; N]| {
        for (column, cell) in cells.iter().enumerate() {
            let width = width(column);
            // Writing to a String cannot fail.
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
    };
    line(&head);
    line(&std::array::from_fn(|column| "-".repeat(width(column))));
    rows.iter().for_each(line);
    text
}

#[cfg(test)]
mod tests {
    use super::{markdown, spread};

    #[test]
    fn an_even_number_of_rounds_has_a_median_between_two() {
        assert_eq!(spread(vec![4.0, 1.0, 2.0], 0), "1 – **2** – 4");
        assert_eq!(spread(vec![4.0, 1.0, 2.0, 3.0], 1), "1.0 – **2.5** – 4.0");
        assert_eq!(spread(Vec::new(), 0), "");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let table = markdown(["a".to_owned()], &[["1 – 2".to_owned()]]);
        assert_eq!(table, "| a     |\n| ----- |\n| 1 – 2 |\n");
    }
}
