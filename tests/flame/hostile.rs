//! Files that lie or are damaged: one line that says where, never a panic, and names that stay text.

use std::io::{Read, Write};
use std::panic::catch_unwind;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use profile::read::{ReadOptions, read};

use crate::{Files, STACKS, assert_has, flame};

fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes.as_ref()).expect("memory");
    gzip.finish().expect("memory")
}

/// One line, exit 1, with this in it.
#[track_caller]
fn assert_refused(input: impl AsRef<[u8]>, why: &str) {
    let said = flame("top -", input).fails(1);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("flame: stdin: ") && !said.contains("panicked"),
        "{said}"
    );
    assert_has(&said, [why]);
}

/// A JSON document with these fields behind the usual ones.
fn json(fields: &str) -> String {
    format!(r#"{{"tool": "x", "values": [{{"name": "v", "unit": "count"}}], {fields}}}"#)
}

#[test]
fn damage_is_named_with_its_place() {
    let cut = gzip(STACKS.repeat(200));
    assert_refused(&cut[..cut.len() / 2], "byte");
    for (input, why) in [
        (
            "main 5\nmain five\nmain six\n",
            "2 malformed lines; line 2 (byte 7): no number at the end",
        ),
        (
            "app;main 18446744073709551616\n",
            "line 1 (byte 0): not a value below 2^64",
        ),
        ("app;main 1e5\n", "not a value"),
        ("\0\0\0\0", "is not a profile"),
        ("a;b 3 5\na;c 0 2\n", "is a difference of two profiles"),
        ("PERFILE2\0", "perf script -i FILE"),
        ("\x0a\x7f\x01", "byte 2"),
        (
            r#"{"tool": "x", "values": [], "stacks": [{"count": -1}]}"#,
            "not usekit's JSON",
        ),
    ] {
        assert_refused(input, why);
    }
    let endless = [&[0x0a][..], &[0xff; 10]].concat();
    assert_refused(endless, "byte");
    let frames = [r#"{"name": "f"}"#; 16_385].join(",");
    let deep = format!(r#""stacks": [{{"count": 1, "values": [1], "user": [{frames}]}}]"#);
    assert_refused(json(&deep), "more than 16,384 frames");
    let odd = json(r#""stacks": [{"count": 1, "values": [1, 2]}]"#);
    assert_refused(&odd, "not as many as their types");
    assert_refused(&odd[..40], "byte 40");
    assert_refused(json(r#""x": 1"#), "missing field `stacks`");
}

#[test]
fn speedscope_files_are_refused_with_what_to_do() {
    let files = Files::new();
    files.made("convert", STACKS, "a.speedscope.json");
    let ours = files.read("a.speedscope.json");
    let others = r#"{"exporter": "speedscope@1.22.2", "shared": {"frames": []}, "profiles": []}"#;
    for input in [&*ours, &gzip(&ours), others.as_bytes()] {
        assert_refused(input, "take the .json or .pb.gz of the same run");
    }
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_pprof_file_is_survived() {
    let files = Files::new();
    files.made("convert", STACKS, "a.pb.gz");
    let mut plain = Vec::new();
    let compressed = files.read("a.pb.gz");
    let read_all = GzDecoder::new(&*compressed).read_to_end(&mut plain);
    read_all.expect("gzip");
    for at in 0..plain.len() {
        let mut damaged = plain.clone();
        damaged[at] ^= 1 << (at % 8);
        for bytes in [&plain[..at], &damaged] {
            let read = catch_unwind(|| read(bytes, &ReadOptions::default()));
            assert!(read.is_ok(), "panic at {at}");
        }
    }
}

#[test]
fn long_names_are_cut_in_pictures_and_survive_elsewhere() {
    let name = "n".repeat(10 << 20);
    let input = format!("app;{name} 5\n");
    let svg = flame("draw -", &input).ok();
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
    assert_eq!(flame("merge -", &input).ok(), input);
    let line = format!("app;{} 5\n", "n".repeat(17 << 20));
    assert_refused(line, "line of more than 16 MiB");
}

#[test]
fn sums_stop_at_the_largest_number() {
    let input = format!("a;f {}\na;g {}\n", u64::MAX, u64::MAX);
    assert_has(&flame("top -", input).ok(), ["f", "g"]);
}

/// Sequences that terminals act on.
const RAW: [char; 3] = ['\x1b', '\x07', '\u{202e}'];

#[test]
fn nothing_from_a_file_reaches_the_terminal_raw() {
    let input = "ev\x1b[2Jil;main\u{202e};x\x07y 100\n";
    for args in ["top -", "top - --by comm", "peek - .", "merge -", "draw -"] {
        let output = flame(args, input).ok();
        assert!(!output.contains(RAW), "{args}: {output}");
    }
}

#[test]
fn errors_show_names_from_files_escaped_and_on_one_line() {
    let duration =
        r#"{"tool": "x", "duration_ns": "\u001b]0;title\u0007\nflame: all is well\u202e"}"#;
    let files = Files::new();
    let of_unit = |name: &str, unit: &str| {
        let text = format!(
            r#"{{"tool": "x", "values": [{{"name": "v\u001b[2J", "unit": "{unit}"}}],
                "stacks": [{{"count": 1, "values": [1], "user": [{{"name": "f"}}]}}]}}"#
        );
        files.file(name, text)
    };
    let (a, b) = (of_unit("a.json", r"x\n\u001b[31m"), of_unit("b.json", "y"));
    for (args, input) in [
        ("top -".into(), duration),
        (format!("merge {a} {b}"), ""),
        (format!("diff {a} {b}"), ""),
        (format!("top {a} --value none\u{202e}"), ""),
    ] {
        let message = flame(&args, input).fails(1);
        assert_eq!(message.lines().count(), 1, "{args}: {message:?}");
        let is_escaped = message.contains('\\') && !message.contains(RAW);
        assert!(is_escaped, "{args}: {message:?}");
    }
}

#[test]
fn a_unit_makes_no_lines_of_perf_script_text() {
    let unit = r"x\n\nevil 1/1 [000] 0.0: 9 ev:\n\t1 injected+0x0 (m)\n\n";
    let input = format!(
        r#"{{"tool": "x", "values": [{{"name": "v", "unit": "{unit}"}}],
            "stacks": [{{"comm": "a", "count": 1, "values": [5], "user": [{{"name": "f"}}]}}]}}"#
    );
    let files = Files::new();
    let path = files.path("a.perf.txt");
    flame(format!("convert - {path}"), input).ok();
    let text = files.text("a.perf.txt");
    assert!(text.contains("injected"), "escaped, not left out: {text}");
    let stacks = flame(format!("merge {path}"), "").ok();
    assert!(
        stacks.contains("a;f ") && !stacks.contains("injected"),
        "{stacks}"
    );
}

/// Each of these is a few MB and unpacks to gigabytes, or takes many times as much in memory.
#[test]
fn small_json_files_of_large_values_are_refused() {
    let stack = r#""stacks": [{"count": 1, "values": [1], "user": [{"name": "f"}]}]"#;
    let long = "n".repeat(65 << 20);
    let name = stack.replace("\"f\"", &format!("{long:?}"));
    assert_refused(gzip(json(&name)), "more than 64 MiB for a stack");
    let comment = format!(r#""event": "{}", {stack}"#, &long[..17 << 20]);
    assert_refused(gzip(json(&comment)), "16 MiB beside stacks");
    let again = format!(r#""later": 0, "losses": "{}", "#, &long[..6 << 20]).repeat(3);
    assert_refused(gzip(json(&format!("{again}{stack}"))), "16 MiB");
    let values = stack.replace("[1]", &format!("[{}1]", "1,".repeat(16_384)));
    assert_refused(json(&values), "more than 16,384");
    // What is not kept may be long.
    let later = format!(r#""later": "{}", {stack}"#, &long[..17 << 20]);
    assert_eq!(flame("merge -", gzip(json(&later))).ok(), "[empty];f 1\n");
}

/// A field of `count` zeros, as pprof packs numbers.
fn packed(tag: u8, count: usize) -> Vec<u8> {
    let mut bytes = vec![tag];
    let mut left = count;
    while left >= 0x80 {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes.resize(bytes.len() + count, 0);
    bytes
}

/// A document with one type of values and this sample.
fn sample(inner: &[u8]) -> Vec<u8> {
    let mut bytes = packed(0x12, inner.len());
    bytes.truncate(bytes.len() - inner.len());
    [&[0x0a, 0, 0x32, 0][..], &bytes, inner].concat()
}

/// Packed numbers take eight times the memory that they take in a file.
#[test]
fn pprof_samples_of_very_many_numbers_are_refused() {
    for (count, locations, values) in [
        (
            16_385,
            "more than 16,384 frames",
            "not as many as their types",
        ),
        (64 << 20, "more than 1 MiB", "more than 1 MiB"),
    ] {
        for (tag, why) in [(0x0a, locations), (0x12, values)] {
            assert_refused(gzip(sample(&packed(tag, count))), why);
        }
    }
    let labels = sample(&[0x1a, 0].repeat(16_385));
    assert_refused(gzip(labels), "more than 16,384");
    // The second would be 3.2 GB if all of them were kept.
    for comments in [packed(0x6a, 64 << 20), packed(0x6a, 1 << 20).repeat(400)] {
        let document = [sample(&[0x12, 1, 5]), comments].concat();
        flame("merge -", gzip(document)).ok();
    }
}

/// Tables that unpack to far more than the file are no reason to run out of memory.
#[test]
fn a_small_file_of_very_many_names_is_refused() {
    let mut document = vec![0x0a, 0x04, 0x08, 0x01, 0x10, 0x02];
    document.extend([0x32, 0x00].repeat((16 << 20) + 1));
    assert_refused(gzip(document), "more than 16,777,216 names");
}

/// Objects of other writers may have their fields in another order; a file may have an object per interval.
#[test]
fn json_objects_add_up_whatever_the_order_of_their_fields() {
    let object = r#"{"stacks": [{"comm": "a", "count": 2, "values": [5], "user": [{"name": "f"}]}], "later": [{"x": 1}],
        "values": [{"name": "samples", "unit": "count"}], "tool": "profile", "duration_ns": 7}"#;
    let sum = flame("merge -", format!("{object}\n{object} \n")).ok();
    assert_eq!(sum, "a;f 10\n");
}
