//! What is written is read back: nothing is lost but what a format has no place for.

mod fixtures;

use std::collections::{BTreeMap, BTreeSet};

use fixtures::recording as again;
use profile::folded::{FoldedOptions, Idle};
use profile::model::{Profile, Sample};
use profile::write::{Format, Meta, write, write_recording};

fn written(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    let meta = Meta {
        comments: vec!["lost nothing".into()],
        time_ns: 1_700_000_000_000_000_000,
        period_ns: 10_101_010,
        build_ids: [("/usr/bin/app".to_owned(), "c0ffee".to_owned())].into(),
        ..Meta::default()
    };
    write(profile, format, &meta, &mut bytes).expect("memory");
    bytes
}

/// One line per distinct sample with everything that tools know of it.
fn everything(profile: &Profile) -> BTreeMap<String, (u64, Vec<u64>)> {
    let mut lines: BTreeMap<String, (u64, Vec<u64>)> = BTreeMap::new();
    for sample in &profile.samples {
        let line = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {}",
            sample.task,
            sample.reason,
            sample.user,
            sample.user_end,
            sample.kernel,
            sample.waker,
            sample.idle
        );
        let (count, values) = lines
            .entry(line)
            .or_insert((0, vec![0; sample.values.len()]));
        *count += sample.count;
        values
            .iter_mut()
            .zip(&sample.values)
            .for_each(|(sum, value)| *sum += value);
    }
    lines
}

fn folded(profile: &Profile, delimiter: bool) -> String {
    let mut bytes = Vec::new();
    let options = FoldedOptions {
        delimiter,
        annotate: true,
        idle: Idle::Fold,
        ..FoldedOptions::default()
    };
    profile::folded::write(profile, &options, &mut bytes).expect("memory");
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn json_keeps_everything() {
    for profile in [fixtures::waits(), fixtures::samples()] {
        let read = again(written(&profile, Format::Json));
        assert_eq!(read.header.comments, ["lost nothing"]);
        assert_eq!(read.header.build_ids["/usr/bin/app"], "c0ffee");
        assert_eq!(read.header.period_ns, 10_101_010);
        assert_eq!(read.header.time_ns, 1_700_000_000_000_000_000);
        let read = read.to_profile();
        assert_eq!(everything(&read), everything(&profile));
        assert_eq!(
            (read.tool, read.duration_ns),
            (profile.tool, profile.duration_ns)
        );
        assert_eq!(read.values, profile.values);
    }
}

#[test]
fn pprof_keeps_all_but_addresses_of_inlined_frames_and_ids_of_wakers() {
    for profile in [fixtures::waits(), fixtures::samples()] {
        let read = again(written(&profile, Format::Pprof));
        assert_eq!(read.header.comments, ["lost nothing"]);
        assert_eq!(read.header.period_ns, 10_101_010);
        assert_eq!(read.header.build_ids["/usr/bin/app"], "c0ffee");
        let read = read.to_profile();
        assert_eq!(folded(&read, false), folded(&profile, false));
        assert_eq!(read.values, profile.values);
        let count = |profile: &Profile| profile.samples.iter().map(|s| s.count).sum::<u64>();
        assert_eq!(count(&read), count(&profile));
        let tasks = |profile: &Profile| {
            let samples = profile.samples.iter();
            let tasks = samples.map(|s| (s.task.clone(), s.reason, s.idle, s.user_end));
            tasks.collect::<BTreeSet<_>>()
        };
        assert_eq!(tasks(&read), tasks(&profile));
        for profile in [&profile, &read] {
            let mut frames = profile.samples.iter().flat_map(|s| s.user.iter());
            assert!(frames.any(|frame| frame.line.is_some()));
        }
    }
}

/// A file's stacks as folded lines.
fn refolded(text: &str) -> String {
    let mut bytes = Vec::new();
    write_recording(&again(text), Format::Folded, "", &mut bytes).expect("memory");
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn folded_lines_come_back_as_they_went() {
    for profile in [fixtures::waits(), fixtures::samples()] {
        let plain = folded(&profile, false);
        assert_eq!(refolded(&plain), plain);
        let delimited = folded(&profile, true);
        assert_eq!(refolded(&delimited), delimited.replace(";-;", ";"));
    }
}

#[test]
fn folded_threads_keep_their_ids() {
    let text = "app-12/13;main;f 5\nweb-1;main 3\n";
    let read = again(text);
    let tasks = read.rows().map(|row| row.key.task);
    let ids: Vec<_> = tasks.map(|task| (task.pid, task.tid)).collect();
    assert_eq!(ids, [(12, 13), (0, 0)]);
    assert!(refolded(text).starts_with("app-12/13;main;f 5\n"));
}

#[test]
fn perf_text_keeps_threads_stacks_and_weights() {
    let profile = fixtures::samples();
    let read = again(written(&profile, Format::Perf));
    assert_eq!(folded(&read.to_profile(), false), folded(&profile, false));
    let profile = fixtures::waits();
    let read = again(written(&profile, Format::Perf));
    let total: u64 = profile.samples.iter().map(Sample::total).sum();
    assert_eq!(read.total(), total);
    assert_eq!((read.unit(), &*read.header.tool), ("ns", "offcputime"));
}

#[test]
fn perf_text_of_a_clock_says_what_a_sample_stands_for() {
    // Each event's own period is 1, for readers that add those up.
    let meta = Meta {
        event: "cpu-clock".into(),
        period_ns: 10_101_010,
        ..Meta::default()
    };
    let mut bytes = Vec::new();
    write(&fixtures::samples(), Format::Perf, &meta, &mut bytes).unwrap();
    let read = again(&bytes);
    assert_eq!((read.total(), read.header.period_ns), (1000, 10_101_010));
}

#[test]
fn every_format_is_recognised_compressed_too() {
    use std::io::Write;
    let profile = fixtures::samples();
    for format in [Format::Folded, Format::Json, Format::Perf] {
        let bytes = written(&profile, format);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&bytes).unwrap();
        assert_eq!(again(gzip.finish().unwrap()).total(), 1000, "{format:?}");
    }
}
