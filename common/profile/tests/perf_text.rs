//! Text of perf script, folded here and by inferno: the same stacks with the same counts.

mod fixtures;

use std::collections::BTreeMap;

use fixtures::inferno::{as_inferno_has_it, of_inferno};
use fixtures::random::Random;
use fixtures::{recording, sample, samples, task};
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use profile::ask::heat::Heat;
use profile::read::{ReadOptions, read};
use profile::write::{Format, Meta, Moment, write_moments, write_recording};

const COMMS: [&str; 6] = [
    "app",
    "main pool",
    "a:b",
    "cafe",
    "kworker/0:1-events",
    "x  y",
];

/// As perf prints them: with offsets and without, with blanks, from files of every kind.
const FRAMES: [&str; 17] = [
    "ffffffff81000130 entry_SYSCALL_64_after_hwframe+0x76 ([kernel.kallsyms])",
    "ffffffff82000000 [unknown] ([kernel.kallsyms])",
    "    7f0000001000 [unknown] (/usr/lib/libc.so.6)",
    "    7f0000001040 [unknown] (/usr/lib/libc.so.6)",
    "               0 [unknown] ([unknown])",
    "          401136 main+0x12 (/usr/bin/app)",
    "          40113a main+0x16 (/usr/bin/app)",
    "          401200 main+0x0 (/usr/lib/a.so)",
    "          402000 std::vec<int, (x)1> (int, long)+0x1f (/usr/bin/app)",
    "          402100 (anonymous namespace)::hidden+0x1f (/usr/bin/app)",
    "          402200 llvm::(anonymous namespace)::Pass::run+0x1f (/usr/bin/app)",
    "          402300 run(int)::$_0::operator()+0x1f (/usr/bin/app)",
    "          402400 net/http.(*Client).Do+0x1f (/usr/bin/app)",
    "    7ffd00000000 [unknown] ([vdso])",
    "    7f0000002000 Lorg/Box;.<init>+0x2 (/tmp/perf-77.map)",
    "          402500 reduce (inlined)",
    "          402600 map<fn((u8, ())) -> u8>::next+0x3 (/usr/bin/app)",
];

/// Events with stacks of every shape, or with none, and of another kind.
fn capture(random: &mut Random, events: usize) -> String {
    let below = |random: &mut Random, limit: usize| (random.uniform() * limit as f64) as usize;
    let mut text = String::from("# captured on: today\n#\n");
    for event in 0..events {
        let comm = COMMS[below(random, COMMS.len())];
        let tid = 100 + below(random, 9);
        let name = if event % 7 == 3 {
            "page-faults"
        } else {
            "cpu-clock"
        };
        let time = event as f64 / 1000.0;
        let head = format!("{comm:>16} {tid}/{tid} [001] {time:11.6}: {name}:");
        match event % 11 {
            // One frame, behind the event's name.
            5 => text += &format!("{head}  {}\n\n", FRAMES[below(random, FRAMES.len())].trim()),
            _ => {
                text += &format!("{head} \n");
                for _ in 0..below(random, 12) {
                    text += &format!("\t{}\n", FRAMES[below(random, FRAMES.len())]);
                }
                text.push('\n');
            }
        }
    }
    text
}

fn sums(folded: &[u8], stack: impl Fn(&str) -> Option<String>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in std::str::from_utf8(folded).expect("UTF-8").lines() {
        let (frames, value) = line.rsplit_once(' ').expect("a value");
        if let Some(frames) = stack(frames) {
            *sums.entry(frames).or_default() += value.parse::<u64>().expect("a number");
        }
    }
    sums
}

fn folded(text: &str, names_only: bool) -> Vec<u8> {
    let options = ReadOptions {
        names_only,
        ..ReadOptions::default()
    };
    let recording = read(text.as_bytes(), &options).expect("events");
    let mut bytes = Vec::new();
    write_recording(&recording, Format::Folded, "", &mut bytes).expect("memory");
    bytes
}

#[test]
fn inferno_folds_the_same_but_for_what_the_manual_names() {
    let text = capture(&mut Random(29), 3000);
    let mut theirs = Vec::new();
    let collapsed = Folder::from(Options::default()).collapse(text.as_bytes(), &mut theirs);
    collapsed.expect("inferno reads it");
    let theirs = sums(&theirs, |stack| Some(of_inferno(stack)));
    let ours = sums(&folded(&text, true), as_inferno_has_it);
    assert!(theirs.len() > 1000 && theirs.values().sum::<u64>() > 2000);
    assert_eq!(ours, theirs);
}

#[test]
fn what_is_folded_does_not_depend_on_what_else_is_kept() {
    let text = capture(&mut Random(31), 2000);
    assert_eq!(folded(&text, true), folded(&text, false));
}

#[test]
fn addresses_are_kept_where_somebody_needs_them() {
    let text = "a 7/8 [000] 1.5: cpu-clock: \n\t 401136 main+0x12 (/bin/a)\n\t 40113a main+0x16 (/bin/a)\n";
    let all = recording(text);
    let mut addresses: Vec<u64> = all.frames().iter().map(|frame| frame.address).collect();
    addresses.sort_unstable();
    assert_eq!(addresses, [0x40_1136, 0x40_113a]);
    assert_eq!(all.rows().next().map(|row| row.key.task.tid), Some(8));
    let options = ReadOptions {
        names_only: true,
        ..ReadOptions::default()
    };
    let names = read(text.as_bytes(), &options).expect("an event");
    assert_eq!(names.frames().len(), 1);
    assert_eq!(names.rows().next().map(|row| row.key.task.tid), Some(0));
}

const PERIOD_NS: u64 = 10_000_000;

/// Samples of two stacks, taken at these times (ns), on these processors, by threads of these IDs, with these weights.
fn timed(moments: &[(u64, u32, u32, u64, usize)]) -> String {
    let mut profile = samples();
    profile.samples = vec![
        sample(task("app", 7, 0), "main read", "k:vfs_read", 1, &[2]),
        sample(task("pool", 7, 9), "main step", "", 1, &[1]),
    ];
    let moment = |&(time_ns, cpu, tid, weight, sample)| Moment {
        time_ns,
        cpu,
        tid,
        weight,
        sample,
    };
    let moments: Vec<Moment> = moments.iter().map(moment).collect();
    let meta = Meta {
        period_ns: PERIOD_NS,
        event: "cpu-clock".into(),
        ..Meta::default()
    };
    let mut text = Vec::new();
    write_moments(&profile, &moments, &meta, &mut text).expect("memory");
    String::from_utf8(text).expect("text")
}

#[test]
fn samples_that_were_kept_have_their_times_threads_and_processors() {
    let text = timed(&[
        (1_000_999_999, 0, 8, 1, 0),
        (1_500_000_000, 11, 0, 1, 1),
        (3_000_000_001, 1, 7, 1, 0),
    ]);
    let heads: Vec<&str> = text.lines().filter(|line| line.ends_with(':')).collect();
    let expected = [
        "app 7/8 [000] 1.000999: 1 cpu-clock:",
        "pool 7/9 [011] 1.500000: 1 cpu-clock:",
        "app 7/7 [001] 3.000000: 1 cpu-clock:",
    ];
    assert_eq!(heads, expected);
    let options = ReadOptions {
        to: Some(1.0),
        ..ReadOptions::default()
    };
    let early = read(text.as_bytes(), &options).expect("events");
    let all = recording(&text);
    assert_eq!([early.total(), all.total()], [2, 3]);
    assert_eq!(all.header.period_ns, PERIOD_NS);
}

/// Of windows, or every so many events: the file says that periods count, and its readers follow.
#[test]
fn samples_that_stand_for_several_keep_their_weight() {
    let text = timed(&[
        (1_000_000_000, 0, 7, 1, 0),
        (1_100_000_000, 0, 7, 50, 1),
        (3_000_000_000, 0, 7, 7, 0),
    ]);
    let remark = "# usekit: value samples in count\n";
    for part in [remark, "1.100000: 50 cpu-clock:\n"] {
        assert!(text.contains(part), "{text}");
    }
    let all = recording(&text);
    assert_eq!((all.total(), all.unit()), (58, "count"));
    assert_eq!(all.header.period_ns, PERIOD_NS);
    // Three events say nothing of how sure 58 samples are.
    assert!(!all.header.has_counts);
    let heat = Heat::read(&mut text.as_bytes()).expect("events");
    assert_eq!((heat.total, heat.seconds[0][5]), (58, 50));
}
