//! What graphs say in words.

use std::collections::BTreeSet;

use crate::escape;
use crate::events;
use crate::recording::Recording;
use crate::text;
use crate::units;

use super::View;
use crate::compare::Verdict;
use crate::compare::scale::Scale;
use crate::tree::{Node, Tree};

/// `off-CPU time`; the title that was asked for comes first.
pub fn subject(recording: &Recording, title: &str) -> String {
    if !title.is_empty() {
        return title.to_owned();
    }
    let header = &recording.header;
    let name = header.values.first().map_or("", |value| &*value.name);
    match (&*header.tool, name) {
        ("offcputime", _) => "Off-CPU time".into(),
        ("profile", "samples") if header.event.is_empty() || header.event.ends_with("-clock") => {
            "CPU time, sampled".into()
        }
        (_, "samples" | "events") if !header.event.is_empty() => header.event.clone(),
        // Only whoever chose a weight knows what it measures, so it is named.
        ("profile", "weight") => recording.unit().to_owned(),
        ("", "samples" | "") => "Stacks".into(),
        ("", name) => name.into(),
        (tool, "samples") => format!("{tool} samples"),
        (tool, name) => format!("{tool}: {name}"),
    }
}

/// `41.2 s over 4 threads in 10.0 s; [idle] is 30.0 s (72.8 %) with nothing to do`.
pub fn amount(recording: &Recording, total: u64) -> String {
    let amount = units::value(total, recording.unit());
    let mut text = match recording.unit() {
        "ns" | "bytes" => amount,
        "count" => units::counted(total, &plural(recording)),
        "" => format!("{amount} in all"),
        unit => match events::sum(unit) {
            Some(sum) => format!("{amount}, {sum}"),
            None => format!("{amount} ({unit})"),
        },
    };
    let threads: BTreeSet<(u32, u32)> = recording
        .rows()
        .map(|row| (row.key.task.pid, row.key.task.tid))
        .filter(|ids| ids.1 != 0)
        .collect();
    if !threads.is_empty() {
        text += &format!(" over {}", units::counted(threads.len() as u64, "threads"));
    }
    if recording.header.duration_ns > 0 {
        text += &format!(" in {}", units::duration(recording.header.duration_ns));
    }
    let idle = recording.rows().filter(|row| row.key.idle);
    let idle = idle.fold(0, |sum: u64, row| {
        sum.saturating_add(recording.weight(&row))
    });
    if idle > 0 {
        let (amount, share) = (
            units::value(idle, recording.unit()),
            idle as f64 / total.max(1) as f64,
        );
        text += &format!(
            "; [idle] is {amount} ({}) with nothing to do",
            text::share(share)
        );
    }
    text
}

fn plural(recording: &Recording) -> String {
    let header = &recording.header;
    let name = header.values.first().map_or("", |value| &*value.name);
    if name.is_empty() || name.len() > 40 {
        "samples".into()
    } else {
        events::values(name, &header.event).into_owned()
    }
}

/// How the picture is to be read; three sentences that hold for it.
pub(super) fn reading(view: &View) -> [String; 3] {
    let above = if view.icicle { "below" } else { "above" };
    let below = if view.icicle { "above" } else { "below" };
    let grows = if view.inverted {
        format!(
            "The function that ran or waited stands at the {}; what called it is {above} it.",
            if view.icicle { "top" } else { "bottom" }
        )
    } else {
        format!(
            "A box stands for a function: what it called is {above} it, what called it is {below} it."
        )
    };
    let width = if view.compared.is_some() {
        "Width is the share in NEW; colour is the change since BASE.".to_owned()
    } else {
        "Width is the share of the total, of the function and all that it called.".to_owned()
    };
    let width = if view.inverted && view.compared.is_none() {
        "Width is the share of the total.".into()
    } else {
        width
    };
    [
        grows,
        width,
        "Left to right is alphabetical, not time.".into(),
    ]
}

/// The lines of a tooltip; the first is the name, which search looks at.
pub(super) fn tooltip(tree: &Tree, node: &Node, view: &View, unit: &str) -> Vec<String> {
    let name = escape::terminal(tree.text(node));
    let mut lines = vec![cut(&name)];
    if let Some(scale) = &view.compared {
        lines.extend(compared(tree, node, scale));
        return lines;
    }
    let all = tree.totals()[0].max(1) as f64;
    let side = &node.sides[0];
    let share = |value: u64| text::share(value as f64 / all);
    let mut amount = format!(
        "{}, {} of all",
        units::value(side.total, unit),
        share(side.total)
    );
    if side.count > 0 && unit == "ns" {
        amount += &format!(", {}", units::counted(side.count, "intervals"));
    }
    lines.push(amount);
    if !view.inverted {
        lines.push(format!(
            "by itself {}, {}",
            units::value(side.own, unit),
            share(side.own)
        ));
    }
    let mut kind = node.class.word().to_owned();
    if node.module.is_some() {
        kind += &format!(", {}", escape::terminal(tree.names.text(node.module)));
    }
    lines.push(cut(&kind));
    lines
}

fn compared(tree: &Tree, node: &Node, scale: &Scale) -> Vec<String> {
    let judged = scale.judge(&node.sides, &tree.nodes[0].sides);
    let verdict = match judged.verdict {
        Verdict::Grew => "GREW in NEW",
        Verdict::Shrank => "SHRANK in NEW",
        Verdict::Unclear => "no change beyond chance",
        Verdict::Unjudged => "counts not known, so chance cannot be judged",
    };
    vec![scale.words(&judged), verdict.into()]
}

/// Names of megabytes would be seen by nobody.
fn cut(name: &str) -> String {
    text::cut(name, 2000)
}
