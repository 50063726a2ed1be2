//! Folded lines of names made to break them, read back by three readers that are not ours.

mod fixtures;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use fixtures::random::Random;
use profile::folded::{self, FoldedOptions, Written};
use profile::model::Profile;

/// `^(.*)\s+?(\d+(?:\.\d*)?)$` of flamegraph.pl, with every script's blanks and digits.
fn split_value(line: &str) -> Option<(&str, &str)> {
    let (at, blank) = line.char_indices().rfind(|(_, c)| c.is_whitespace())?;
    let value = &line[at + blank.len_utf8()..];
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let digits = |text: &str| text.chars().all(char::is_numeric);
    (!whole.is_empty() && digits(whole) && digits(fraction)).then_some((&line[..at], value))
}

fn write(profile: &Profile, options: &FoldedOptions) -> (String, Written) {
    let mut text = Vec::new();
    let written = folded::write(profile, options, &mut text).expect("memory");
    (String::from_utf8(text).expect("text"), written)
}

#[test]
fn every_line_reads_back_as_one_stack_and_one_value() {
    let mut random = Random(0x5eed);
    for round in 0..3000 {
        let (profile, options) = (random.profile(), random.options());
        let (text, written) = write(&profile, &options);
        let mut total = 0;
        let mut stacks = BTreeMap::new();
        for line in text.split_terminator('\n') {
            assert!(!line.contains(char::is_control), "{round}: {line:?}");
            let (stack, value) = split_value(line).expect(line);
            assert_eq!(stack, stack.trim(), "{round}: {line:?}");
            assert!(
                split_value(stack).is_none(),
                "{round}: differential: {line:?}"
            );
            assert!(
                stack.split(';').all(|frame| !frame.is_empty()),
                "{round}: {line:?}"
            );
            let value: u64 = value.parse().unwrap();
            assert!(
                value > 0 && stacks.insert(stack.to_owned(), value).is_none(),
                "{round}: {line:?}"
            );
            total += value;
        }
        assert_eq!(
            (stacks.len(), total),
            (written.lines, written.total),
            "{round}"
        );
        assert_eq!(text.lines().count(), written.lines, "{round}");
    }
}

#[test]
fn frames_are_as_many_as_the_stack_has() {
    let mut random = Random(0xf00d);
    for round in 0..2000 {
        let mut profile = random.profile();
        profile.samples.truncate(1);
        profile.samples[0].values = vec![1, 0];
        let (text, _) = write(&profile, &FoldedOptions::default());
        let sample = &profile.samples[0];
        let waker = sample
            .waker
            .as_ref()
            .map_or(0, |waker| 2 + waker.user.len() + waker.kernel.len());
        let frames = 1 + sample.user.len() + sample.kernel.len() + waker;
        assert_eq!(text.split(';').count(), frames, "{round}: {text:?}");
    }
}

#[test]
fn split_lines_add_up_to_the_unsplit_ones() {
    let mut random = Random(0xadd);
    for _ in 0..2000 {
        let (profile, mut options) = (random.profile(), random.options());
        options.split = false;
        let (_, whole) = write(&profile, &options);
        options.split = true;
        let (_, parts) = write(&profile, &options);
        // A name's last blank may be `_` only in the unsplit line, which can make two stacks one: half a unit each.
        let apart = whole.total.abs_diff(parts.total);
        assert!(apart <= 1, "{whole:?} {parts:?}");
    }
}

#[test]
fn order_of_samples_does_not_matter() {
    let mut random = Random(0x0dd);
    for _ in 0..300 {
        let (mut profile, options) = (random.profile(), random.options());
        let before = write(&profile, &options);
        profile.samples.reverse();
        assert_eq!(before, write(&profile, &options));
    }
}

/// The SVG says `all (N samples, 100%)`.
#[test]
fn inferno_counts_the_same_total() {
    let mut random = Random(0x1f);
    for round in 0..60 {
        let (text, written) = write(&random.profile(), &random.options());
        if written.total == 0 {
            continue;
        }
        let mut options = inferno::flamegraph::Options::default();
        let mut svg = Vec::new();
        inferno::flamegraph::from_lines(&mut options, text.lines(), &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let (_, all) = svg.split_once("<title>all (").expect("a root");
        let (total, _) = all.split_once(" samples").unwrap();
        assert_eq!(
            total.replace(',', ""),
            written.total.to_string(),
            "{round}: {text:?}"
        );
        // Differential lines have a delta in their titles.
        assert!(
            !svg.contains("%; +") && !svg.contains("%; -"),
            "{round}: {text:?}"
        );
    }
}

/// flamegraph.pl's expression in the language that it was written for.
#[test]
fn perl_counts_the_same_total() {
    const SCRIPT: &str = r#"
        my $re = qr/^(.*)\s+?(\d+(?:\.\d*)?)$/;
        my ($total, $bad) = (0, 0);
        while (<STDIN>) {
            chomp;
            my ($stack, $value) = $_ =~ $re;
            if (!defined $stack || $stack =~ $re) { $bad++; next; }
            $total += $value;
        }
        print "$total $bad";
    "#;
    let mut random = Random(0x9e71);
    for round in 0..20 {
        let mut profile = random.profile();
        (0..40).for_each(|_| profile.samples.extend(random.profile().samples));
        let (text, written) = write(&profile, &random.options());
        for unicode in ["-C0", "-CS"] {
            let perl = Command::new("perl")
                .args([unicode, "-e", SCRIPT])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let Ok(mut perl) = perl else {
                return eprintln!("skipped: no perl");
            };
            perl.stdin
                .take()
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            let answer = perl.wait_with_output().unwrap().stdout;
            let expected = format!("{} 0", written.total);
            assert_eq!(
                String::from_utf8_lossy(&answer),
                expected,
                "{round} {unicode}"
            );
        }
    }
}

#[test]
fn a_line_that_is_too_deep_leaves_nothing_to_the_next() {
    let deep = ["a", &"x;".repeat(20_000)].join(";");
    let text = format!("a;bbbb;c 1\n{deep}y 1\na;bbbb;d 1\n");
    let recording = fixtures::recording(text);
    let stack = |row: profile::recording::Row<'_>| {
        let frames = recording.root_first(row.key.stack).into_iter();
        let names: Vec<&str> = frames.map(|frame| recording.text(frame.name)).collect();
        names.join(";")
    };
    let mut stacks: Vec<String> = recording.rows().map(stack).collect();
    stacks.sort();
    assert_eq!(stacks, ["bbbb;c", "bbbb;d"], "below the task");
    assert_eq!(recording.total(), 2);
}
