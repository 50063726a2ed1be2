//! profile's `.perf.txt`: single samples with their times, of a program that says when it computed.

use std::ops::Range;

use profile::ask::heat::{Heat, PARTS};
use profile::read::perf::header;
use profile::read::{ReadOptions, read};

use crate::prelude::*;
use crate::ticks::{Clocked, assert_ticks, clocked};

const HERTZ: u64 = 997;

/// A burst: when, s and ns.
struct Burst {
    when: Range<f64>,
    when_ns: Range<u64>,
}

fn bursts(results: &[Value]) -> Vec<Burst> {
    let bursts = list(&results[0], "bursts");
    let burst = |burst: &Value| {
        let when_ns = number(burst, "begin_ns")..number(burst, "end_ns");
        let when = when_ns.start as f64 / 1e9..when_ns.end as f64 / 1e9;
        Burst { when, when_ns }
    };
    bursts.iter().map(burst).collect()
}

fn within(part: u64, whole: u64, share: f64) -> bool {
    part as f64 >= share * whole as f64
}

/// Of all events, s.
fn times(text: &str) -> Vec<f64> {
    let lines = text.lines();
    let heads = lines.filter(|line| !line.starts_with(['\t', '#']));
    heads.filter_map(|line| header(line)?.time).collect()
}

const CALLS: u64 = 200_009;

/// More samples than the ring has room for.
const BUSY: &str = r#"
int main(void)
{
	ready();
	for (int i = 0; i < 200009; i++)
		syscall(SYS_getppid);
	return finished();
}
"#;

/// A tool that has no CPU for so long that the ring of times fills up.
#[test]
fn times_that_found_no_room_are_counted_and_the_samples_are_not_lost() {
    let _machine = Machine::alone();
    let program = Program::c("busy", BUSY, "");
    let path = program.dir().join("busy.perf.txt");
    let mut workload = program.start("");
    let options = "-j --strict -e tracepoint:syscalls:sys_enter_getppid";
    let args = format!("{options} -p {} -o {}", workload.pid(), path.display());
    let tool = Tool::attached("profile", args);
    tool.signal(libc::SIGSTOP);
    workload.work();
    tool.signal(libc::SIGCONT);
    tool.interrupt();
    let report = tool.finish().status(3).report();
    workload.finish();
    assert_eq!(number(&report["events"], "samples"), CALLS);
    let kept = times(&std::fs::read_to_string(&path).expect("text")).len() as u64;
    let lost = number(&report["losses"], "moments_full");
    assert!(kept > 100_000 && lost > 0, "{kept} kept, {lost} lost");
    assert_eq!(kept + lost, CALLS);
}

impl Burst {
    /// Times are printed in whole microseconds.
    fn samples(&self, times: &[f64]) -> u64 {
        let is_in = |time: &&f64| self.when.start - 1e-6 <= **time && **time <= self.when.end;
        times.iter().filter(is_in).count() as u64
    }
}

/// Samples in bursts: in each as many as there were ticks.
fn inside(bursts: &[Burst], times: &[f64], found: &Clocked) -> u64 {
    let tid = id(&found.results[0], "tid");
    let inside = bursts.iter().map(|burst| {
        let inside = burst.samples(times);
        assert_ticks(inside, &found.ticks, tid, &burst.when_ns);
        inside
    });
    inside.sum()
}

#[test]
fn samples_have_the_times_of_the_bursts_that_they_are_of() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bursts.perf.txt");
    let workload = Workload::start("bursts", "--bursts 5 --millis 100");
    let options = format!("-o {}", path.display());
    let found = clocked(HERTZ, &options, workload);
    let bursts = bursts(&found.results);
    assert_eq!(bursts.len(), 5);
    let text = std::fs::read_to_string(&path).expect("text");
    let times = times(&text);
    assert!(times.is_sorted(), "in order of time");
    let total = number(&found.report["events"], "samples");
    assert_eq!(times.len() as u64, total, "an event per sample");

    let all_inside = inside(&bursts, &times, &found);
    assert!(within(all_inside, total, 0.97), "{all_inside} of {total}");

    // The heat map: its zero is the first sample.
    let heat = Heat::read(&mut text.as_bytes()).expect("events");
    assert_eq!(heat.total, total);
    let width = 1.0 / PARTS as f64;
    let is_hot = |second: usize, part: usize| {
        let begin = times[0] + second as f64 + part as f64 * width;
        let mut bursts = bursts.iter();
        bursts.any(|burst| burst.when.start - width <= begin && begin <= burst.when.end)
    };
    let (mut hot, mut cold_parts) = (0, 0);
    for (second, parts) in heat.seconds.iter().enumerate() {
        for (part, count) in parts.iter().enumerate() {
            match is_hot(second, part) {
                true => hot += count,
                false => cold_parts += 1,
            }
        }
    }
    assert!(within(hot, total, 0.97), "{hot} of {total}");
    assert!(cold_parts > 50, "there are pauses: {cold_parts}");

    // One burst alone, by the same zero.
    let third = &bursts[2];
    let options = ReadOptions {
        from: Some(third.when.start - times[0] - width),
        to: Some(third.when.end - times[0] + width),
        ..ReadOptions::default()
    };
    let chosen = read(text.as_bytes(), &options).expect("events");
    let inside = third.samples(&times);
    assert!(chosen.total() >= inside && within(inside, chosen.total(), 0.95));
    assert_eq!(chosen.header.period_ns, 1_000_000_000 / HERTZ);
}
