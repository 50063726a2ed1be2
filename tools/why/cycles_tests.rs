//! The slowest against the others, of made-up cycles.

use host::waits::Wait;
use profile::style::Style;
use profile::text::columns;

use super::*;
use crate::offcputime::cycles::MARKED;
use crate::offcputime::on_cpu::Ran;
use crate::offcputime::pieces::Room;
use crate::why::{cycles_json, cycles_text};

const MS: u64 = 1_000_000;

fn spot(user: u64) -> Spot {
    Spot {
        tgid: 7,
        wait: Wait::default().into(),
        user,
        kernel: 0,
        endpoint: user,
    }
}

/// The place where a cycle runs that waits with the same stack.
fn ran(user: u64) -> Ran {
    Ran {
        tgid: 7,
        user,
        kernel: 0,
    }
}

/// So many cycles of a length, of which one wait has a part.
fn add(pieces: &mut Pieces, number: u64, ms: u64, (user, blocked_ms): (u64, u64)) {
    for at in 0..number {
        let time = Time {
            blocked_ns: blocked_ms * MS,
            runqueue_ns: 0,
        };
        let cycle = Cycle {
            begin_ns: at,
            ns: ms * MS,
            tgid: 7,
            tid: 8,
            comm: "worker\u{1b}[31m".into(),
            steps: vec![(spot(user), time)],
            samples: HashMap::from([(ran(user), 6)]),
        };
        let mut room = Room {
            waits: 1,
            samples: 1,
            left_out: 0,
        };
        assert_eq!(pieces.add(cycle, &mut room), 0);
    }
}

/// Waits with stack 1 are for two locks, one of which has three quarters; others are in a place of a long name.
fn places<'a>(functions: &'a Functions, endpoints: &'a HashMap<u64, Endpoint>) -> Places<'a> {
    let at = |place: &str, lock: Option<&str>| At {
        kind: "futex",
        place: Some(place.into()),
        lock: lock.map(str::to_owned),
    };
    let lines = vec![(at("take", Some("a")), 3 * MS), (at("take", Some("b")), MS)];
    let of = |lines| Place {
        is_quota: false,
        lines,
    };
    let other = vec![(at(&"long_name_".repeat(50), None), MS)];
    let alone = |(spot, place): (Spot, Place)| (spot.without_endpoint(), place);
    Places {
        all: [(spot(1), of(lines)), (spot(2), of(other))]
            .map(alone)
            .into(),
        endpoints,
        functions,
    }
}

fn cycles(percent: f64) -> Cycles {
    let mut pieces = Pieces::default();
    add(&mut pieces, 98, 2, (2, 1));
    add(&mut pieces, 2, 40, (1, 36));
    let mut cycles = Cycles {
        percent,
        homes: Vec::new(),
        marked: None,
        slow: Group::default(),
        rest: Group::default(),
        parts: Vec::new(),
        exemplars: Vec::new(),
        cut: 3,
        looked_ns: 1_000 * MS,
        are_in_windows: true,
    };
    let functions = Functions::from([(ran(2), "parse")]);
    let file = Endpoint::File(format!("/{}", "f".repeat(999)));
    let endpoints = HashMap::from([(1, file)]);
    cycles.compare(&pieces, &places(&functions, &endpoints));
    let name = (
        "application".into(),
        "epoll",
        Some("serve_".repeat(99).into()),
    );
    cycles.homes.push(home((name, (pieces, vec![7]))));
    cycles
}

/// Mean times of a line, in the slowest and in the others, us.
fn means(cycles: &Cycles, kind: &str, lock: Option<&str>) -> [u64; 2] {
    let is_it = |part: &&Part| part.at.kind == kind && part.at.lock.as_deref() == lock;
    let part = cycles.parts.iter().find(is_it).expect("a line");
    let (slow, rest) = (cycles.slow, cycles.rest);
    [slow.mean_ns(part.slow_ns), rest.mean_ns(part.rest_ns)].map(|ns| ns / 1_000)
}

/// The same on CPUs, in a function.
fn on_cpu(cycles: &Cycles, function: Option<&str>) -> Option<[u64; 2]> {
    let is_it = |part: &&Part| part.at.kind == ON_CPU && part.at.place.as_deref() == function;
    let part = cycles.parts.iter().find(is_it)?;
    let (slow, rest) = (cycles.slow, cycles.rest);
    Some([slow.mean_ns(part.slow_ns), rest.mean_ns(part.rest_ns)].map(|ns| ns / 1_000))
}

#[test]
fn cycles_of_about_one_length_are_the_slowest_in_part() {
    let half = cycles(1.0);
    assert_eq!((half.slow.count, half.rest.count), (1.0, 99.0));
    assert_eq!(half.slow.mean_ns(half.slow.ns), 40 * MS);
    // One of the two is among the others.
    assert_eq!(means(&half, "futex", Some("a")), [27_000, 272]);
    assert_eq!(means(&half, "futex", Some("b")), [9_000, 90]);
    // Six samples of the one are too few.
    assert_eq!(on_cpu(&half, None), Some([4_000, 1_030]));
    assert_eq!(on_cpu(&half, Some("parse")), None);
    assert_eq!(means(&half, "futex", None), [0, 989]);

    let both = cycles(2.0);
    assert_eq!((both.slow.count, both.rest.count), (2.0, 98.0));
    assert_eq!(means(&both, "futex", Some("a")), [27_000, 0]);
    assert_eq!(means(&both, "futex", None), [0, 1_000]);
    assert_eq!(on_cpu(&both, Some("parse")), Some([0, 1_000]));
    assert_eq!(on_cpu(&both, None), Some([4_000, 0]), "nobody knows where");
    let first = &both.parts[0];
    assert_eq!(first.at.lock.as_deref(), Some("a"), "it differs most");
    let (endpoint, shares) = first.shares().expect("all of it is for a file");
    assert!(endpoint.parts().1.ends_with("fff"));
    assert_eq!(shares, [1.0, 0.0]);
    let mut others = both.parts.iter().filter(|part| part.at.lock.is_none());
    assert!(others.all(|part| part.shares().is_none()), "nor any other");

    let one = &both.exemplars[0];
    assert_eq!(one.parts.iter().map(|(_, ns, _)| ns).sum::<u64>(), one.ns);
}

#[test]
fn no_line_is_too_long_and_none_has_foreign_sequences() {
    let mut out = Vec::new();
    cycles_text::write(&cycles(1.0), Style::from(false), &mut out).expect("memory");
    let text = String::from_utf8(out).expect("text");
    for line in text.lines() {
        assert!(columns(line) <= 80 && !line.contains('\u{1b}'), "{line}");
    }
    assert!(text.contains("within one sampling window"), "{text}");
    let titles = " SLOWEST   OTHERS  WHERE THE TIME OF ONE CYCLE WENT\n";
    assert!(text.contains(titles), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let name = format!("…{}", "f".repeat(39));
    let exemplar = format!("futex for a ({name}) 27.0 ms");
    assert!(text.contains(&exemplar), "{text}");
    assert!(text.contains(" 100% for …fff"), "{text}");
    assert!(text.contains("fff, others 100% "), "{text}");
}

#[test]
fn cycles_that_functions_tell_are_from_one_to_the_other() {
    let text = |cycles: &Cycles| {
        let mut out = Vec::new();
        cycles_text::write(cycles, Style::from(false), &mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut told = cycles(1.0);
    told.homes[0].kind = MARKED;
    told.homes[0].place = Some("handle to its return".into());
    let expected = "100 work cycles of application 7 from handle to its return, 100/s: p50";
    assert!(text(&told).starts_with(expected), "{}", text(&told));
    let long = "_ZN".repeat(99);
    told.homes[0].place = Some(format!("{long} to the return of {long}").into());
    assert!(text(&told).contains(" to the return of _ZN"));
    let mut out = Vec::new();
    cycles_text::write(&told, Style::from(false), &mut out).expect("memory");
    let lines = String::from_utf8(out).expect("text");
    assert!(lines.lines().all(|line| columns(line) <= 80), "{lines}");

    told.homes.clear();
    told.marked = Some("handle to its return".into());
    let none = "no work cycles: no thread was seen to go from handle to its return (at the edges 3 more) only those";
    assert!(text(&told).starts_with(none), "{}", text(&told));
}

#[test]
fn the_brief_form_is_short_and_the_whole_one_has_all() {
    let cycles = cycles(1.0);
    let brief = cycles_json::brief(&cycles, cycles_json::BRIEF_LINES);
    assert!(brief.to_string().len() < 1500, "{brief}");
    assert_eq!(brief["lines"].as_array().map(Vec::len), Some(4));
    assert_eq!(brief["home"]["count"], 100);
    assert_eq!(brief["lines"][0]["endpoint"]["slowest_share"], 1.0);
    let whole = cycles_json::whole(&cycles);
    assert_eq!(whole["slowest"]["cycles"].as_array().map(Vec::len), Some(5));
    assert_eq!(
        (&whole["cut"], &whole["homes"][0]["pid"]),
        (&3.into(), &7.into())
    );
}
