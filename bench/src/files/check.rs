//! Whether two programs said the same of the same file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

#[path = "../../../common/profile/tests/fixtures/inferno.rs"]
mod inferno;

use inferno::{as_inferno_has_it, of_inferno};

/// Boxes narrower than this share may be left out by one and drawn by the other.
const WIDE: f64 = 2e-4;

/// Value of each box of a picture that is wide enough for all, by name.
type Boxes = BTreeMap<(String, u64), usize>;

fn text(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `<title>NAME (N samples, …)` of others, `<title>NAME</title><desc>N, …` of ours.
fn boxes(svg: &str) -> Boxes {
    let mut found = Boxes::new();
    for piece in svg.split("<title>").skip(1) {
        let Some((title, rest)) = piece.split_once("</title>") else {
            continue;
        };
        let (name, value) = match rest.strip_prefix("<desc>") {
            Some(rest) => (title, rest.split(", ").next()),
            None => match title.rsplit_once(" (") {
                Some((name, more)) => (name, more.split(' ').next()),
                None => continue,
            },
        };
        let Some(value) = value.and_then(|value| value.replace(',', "").parse().ok()) else {
            continue;
        };
        *found.entry((name.to_owned(), value)).or_default() += 1;
    }
    let whole = found.keys().map(|(_, value)| *value).max().unwrap_or(0);
    found.retain(|(_, value), _| *value as f64 > WIDE * whole as f64);
    found
}

/// Pictures have the same boxes.
pub(crate) fn pictures(ours: &Path, theirs: &Path) -> Result<String> {
    let (ours, theirs) = (boxes(&text(ours)?), boxes(&text(theirs)?));
    ensure!(!ours.is_empty(), "flame drew no boxes");
    let different = ours.iter().find(|(key, n)| theirs.get(*key) != Some(*n));
    let different = different.or_else(|| theirs.iter().find(|(key, n)| ours.get(*key) != Some(*n)));
    ensure!(different.is_none(), "boxes differ: {different:?}");
    Ok(format!("the same {} boxes", ours.values().sum::<usize>()))
}

/// Folded texts have the same stacks with the same sums, but for what the manual names.
pub(crate) fn folded(ours: &Path, theirs: &Path) -> Result<String> {
    let sums = |path: &Path, comparable: fn(&str) -> Option<String>| -> Result<_> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let mut without = 0;
        for line in text(path)?.lines() {
            let (stack, value) = line.rsplit_once(' ').context("a folded line")?;
            let value: u64 = value.parse().context("a number")?;
            match comparable(stack) {
                Some(stack) => *sums.entry(stack).or_default() += value,
                None => without += value,
            }
        }
        Ok((sums, without))
    };
    let (ours, without) = sums(ours, as_inferno_has_it)?;
    let (theirs, _) = sums(theirs, |stack| Some(of_inferno(stack)))?;
    let [a, b] = [&ours, &theirs].map(|sums| sums.values().sum::<u64>());
    ensure!(a == b && a > 0, "totals differ: {a} and {b}");
    let different = ours
        .iter()
        .find(|(stack, n)| theirs.get(*stack) != Some(*n));
    ensure!(different.is_none(), "stacks differ: {different:?}");
    let without = match without {
        0 => String::new(),
        n => format!(", and {n} in flame's that have no stack in inferno's"),
    };
    Ok(format!(
        "the same {} stacks of {a} events{without}",
        ours.len()
    ))
}

/// The function that each of two tables has first, with its share of the whole.
pub(crate) fn leaders(ours: &Path, theirs: &Path) -> Result<String> {
    let (ours, theirs) = (text(ours)?, text(theirs)?);
    let line = theirs
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("flat "))
        .nth(1)
        .context("pprof printed no function")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let (share, name) = (
        words.get(1).context("a share")?,
        words.last().context("a name")?,
    );
    let line = ours
        .lines()
        .find(|line| line.split_whitespace().any(|word| word == *name));
    let line = line.with_context(|| format!("flame does not list {name}"))?;
    let number = |text: &str| text.trim_end_matches('%').parse::<f64>().ok();
    let theirs = number(share).context("a share")?;
    let found = line.split_whitespace().filter_map(number);
    let is_near = found.take(4).any(|ours| (ours - theirs).abs() < 0.06);
    ensure!(is_near, "{name}: {share} there, here {line}");
    Ok(format!("{name} first in both, {share}"))
}
