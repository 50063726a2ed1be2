//! Moments that are made up, and the strips of a page that they become.

use std::collections::HashMap;

use profile::draw::Strip;

use super::{MOST, Moment, Timeline};
use crate::why::strips;
use crate::why::tests::{MS, account, line};

fn moment(number: u64, busy: f64, vda: f64) -> Moment {
    let start_ns = 5 + number * 100 * MS;
    Moment {
        start_ns,
        end_ns: start_ns + 100 * MS,
        busy,
        disks: [("vda".to_owned(), vda)].into(),
        refaulted_bytes: 4096,
        samples: HashMap::from([(7, 25), (8, 50)]),
        ..Moment::default()
    }
}

#[test]
fn of_too_many_moments_two_become_one_and_nothing_is_lost() {
    let mut timeline = Timeline::default();
    let all = 2 * MOST as u64 + 1;
    for number in 0..all {
        timeline.push(moment(number, (number % 2) as f64, 0.5));
    }
    let moments = timeline.take(u64::MAX);
    assert!(moments.len() < MOST, "{}", moments.len());
    assert_eq!(moments[0].start_ns, 5);
    for two in moments.windows(2) {
        assert_eq!(two[0].end_ns, two[1].start_ns);
    }
    let sum = |value: fn(&Moment) -> f64| moments.iter().map(value).sum::<f64>();
    let seconds = |moment: &Moment| moment.ns() as f64 / 1e9;
    let close = |found: f64, expected: f64| {
        assert!(
            (found - expected).abs() < 1e-6 * expected,
            "{found}, {expected}"
        );
    };
    close(sum(seconds), all as f64 / 10.0);
    close(
        sum(|moment| moment.busy * moment.ns() as f64),
        (all / 2) as f64 * 1e8,
    );
    close(
        sum(|moment| moment.disks["vda"]),
        0.5 * moments.len() as f64,
    );
    close(sum(|moment| moment.samples[&7] as f64), 25.0 * all as f64);
    assert!(
        moments
            .iter()
            .all(|moment| moment.refaulted_bytes % 4096 == 0)
    );
    close(
        sum(|moment| moment.refaulted_bytes as f64),
        4096.0 * all as f64,
    );
}

#[test]
fn a_window_ends_its_last_moment_and_a_short_one_is_no_moment() {
    let ends = |end_ns: u64| -> Vec<u64> {
        let mut timeline = Timeline::default();
        for number in 0..3 {
            timeline.push(moment(number, 1.0, 0.0));
        }
        let moments = timeline.take(end_ns);
        let samples: u64 = moments.iter().map(|moment| moment.samples[&7]).sum();
        assert!(samples >= 50, "{moments:?}");
        moments.iter().map(|moment| moment.end_ns).collect()
    };
    assert_eq!(
        ends(5 + 300 * MS),
        [5 + 100 * MS, 5 + 200 * MS, 5 + 300 * MS]
    );
    assert_eq!(ends(5 + 250 * MS), [5 + 100 * MS, 5 + 250 * MS]);
    assert_eq!(ends(5 + 200 * MS), [5 + 100 * MS, 5 + 200 * MS]);
}

#[test]
fn a_strip_has_each_moment_where_it_was_and_as_high_as_its_share() {
    let mut account = account(vec![line("futex", 900, &[])]);
    account.moments = vec![moment(0, 0.25, 0.0), moment(9, 1.0, 0.004)];
    let timeline = strips::timeline(&account);
    let labels: Vec<&str> = timeline
        .strips
        .iter()
        .map(|strip| &strip.label[..])
        .collect();
    let expected = [
        "app 7: on CPUs, of 2",
        "all CPUs: busy",
        "vda: requests under way",
        "memory read again, for want of room",
    ];
    assert_eq!(labels, expected);
    let heights =
        |strip: &Strip| -> Vec<f64> { strip.pieces.iter().map(|piece| piece.height).collect() };
    let all = &timeline.strips[1];
    assert_eq!(heights(all), [0.25, 1.0]);
    assert_eq!(all.amount, "62% on average, 100% at most");
    let [begin, end] = all.pieces[1].span;
    assert!(
        (begin - 0.9).abs() < 1e-6 && (end - 1.0).abs() < 1e-6,
        "{begin} {end}"
    );
    // 75 samples of two processes in 100 ms are 1.5 CPUs.
    let own = &timeline.strips[0];
    assert_eq!(own.amount, "1.5 on average, 1.5 at most");
    assert!(
        (heights(own)[0] - 0.75).abs() < 0.01,
        "of two CPUs: {own:?}"
    );
    assert_eq!(
        timeline.strips[3].amount,
        "8.00 KiB in all, 40.0 KiB/s at most"
    );

    account.looked = Some(0.1);
    let timeline = strips::timeline(&account);
    assert_eq!(
        timeline.strips[0].label, "all CPUs: busy",
        "samples of a part of the time are no CPUs"
    );
    account.moments.clear();
    assert_eq!(strips::timeline(&account).strips, []);
}
