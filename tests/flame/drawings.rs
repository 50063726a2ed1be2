//! `flamegraph.pl`, inferno and flame draw the same boxes of the same folded text.

use std::collections::BTreeMap;
use std::process::Command;

use crate::{Files, Run, STACKS, flame};

/// Debian's copy, in libdevel-nytprof-perl.
const FLAMEGRAPH: &str = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl";

/// Stacks whose boxes are all wide enough to be drawn, with names that are hard on parsers.
fn stacks() -> String {
    let names = [
        "read_[k]",
        "step_[j]",
        "inner_[i]",
        "operator<<(a, b)",
        "a b",
        "pool 3",
        "λ",
    ];
    // flame draws idle waits elsewhere than they stand in the line.
    let drawn_alike = STACKS.lines().filter(|line| !line.contains("[idle]"));
    let mut lines: String = drawn_alike.map(|line| format!("{line}\n")).collect();
    for (index, name) in names.iter().enumerate() {
        for depth in 1..=6_usize {
            let inner = vec![*name; depth].join(";");
            let value = 7 + (index * 31 + depth * 17) % 90;
            lines += &format!("app;main;{inner} {value}\n");
        }
    }
    lines
}

/// Name and samples → widths as shares of the whole, in ascending order.
type Boxes = BTreeMap<(String, u64), Vec<f64>>;

/// Reads boxes out of a picture: what is between `open` and `close` is `NAME (N samples, SHARE)`, then comes a width.
fn boxes(svg: &str, whole: f64) -> Boxes {
    let mut found = Boxes::new();
    for piece in svg.split("<title>").skip(1) {
        let (title, rest) = piece.split_once("</title>").expect("an end");
        let Some((name, more)) = title.rsplit_once(" (") else {
            continue;
        };
        let count = more.split(' ').next().expect("a number").replace(',', "");
        let width = rest
            .split_once("width=\"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let width = width.expect("a width").0.trim_end_matches('%');
        let key = (plain(name), count.parse().expect("a number"));
        let width: f64 = width.parse().expect("a number");
        found.entry(key).or_default().push(width / whole);
    }
    sorted(found)
}

/// Ours say `N, SHARE of all …` in the description.
fn our_boxes(svg: &str) -> Boxes {
    let mut found = Boxes::new();
    for piece in svg.split("<title>").skip(1) {
        let (name, rest) = piece.split_once("</title><desc>").expect("an end");
        let count = rest.split(", ").next().expect("a number").replace(',', "");
        let (_, width) = rest.split_once("width=\"").expect("a width");
        let width: f64 = width
            .split('"')
            .next()
            .and_then(|w| w.parse().ok())
            .expect("a width");
        let key = (plain(name), count.parse().expect("a number"));
        found.entry(key).or_default().push(width / 1200.0);
    }
    sorted(found)
}

fn sorted(mut boxes: Boxes) -> Boxes {
    for widths in boxes.values_mut() {
        widths.sort_by(f64::total_cmp);
    }
    boxes
}

/// Without annotation and entities; flamegraph.pl draws angle brackets as round ones.
fn plain(name: &str) -> String {
    let marks = ["_[k]", "_[i]", "_[j]"];
    let name = marks
        .iter()
        .find_map(|mark| name.strip_suffix(mark))
        .unwrap_or(name);
    let name = name.replace("&lt;", "(").replace("&gt;", ")");
    name.replace("&amp;", "&")
}

fn flamegraph(folded: &str) -> Boxes {
    let output = Command::new("perl")
        .args([FLAMEGRAPH, "--minwidth", "0", folded])
        .output();
    let run = Run::of(output.expect("perl is installed"));
    assert_eq!(run.stderr, "", "{FLAMEGRAPH}: setup/deps test");
    boxes(&run.ok(), 1180.0)
}

fn inferno(folded: &str) -> Boxes {
    let mut options = inferno::flamegraph::Options::default();
    options.min_width = 0.0;
    let mut svg = Vec::new();
    inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut svg).expect("folded text");
    boxes(&String::from_utf8(svg).expect("UTF-8"), 100.0)
}

#[test]
fn flamegraph_pl_and_inferno_draw_the_same_boxes_as_flame() {
    let files = Files::new();
    let folded = files.made("convert", &stacks(), "out.folded");
    let ours = our_boxes(&flame(format!("draw {folded}"), "").ok());
    assert!(ours.len() > 50, "{}", ours.len());
    let whole = stacks().lines().map(value).sum::<u64>();
    assert_eq!(ours[&("all".into(), whole)], [1.0]);
    // flamegraph.pl has one digit of a pixel, for both ends.
    for (theirs, error) in [
        (inferno(&files.text("out.folded")), 2e-6),
        (flamegraph(&folded), 0.11 / 1180.0),
    ] {
        let keys = |boxes: &Boxes| boxes.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&ours), keys(&theirs));
        for (key, widths) in &ours {
            let other = &theirs[key];
            assert_eq!(widths.len(), other.len(), "{key:?}");
            for (a, b) in widths.iter().zip(other) {
                assert!((a - b).abs() < error, "{key:?}: {a} and {b}");
            }
        }
    }
}

fn value(line: &str) -> u64 {
    let number = line.rsplit(' ').next().expect("a number");
    number.parse().expect("a number")
}
