//! Files that lie or are damaged: one line that says where, never a panic, and names that stay text.

use std::io::Write;

use crate::{STACKS, flame_with, stderr, stdout};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).expect("memory");
    gzip.finish().expect("memory")
}

/// One line, exit 1.
fn complaint(input: impl AsRef<[u8]>) -> String {
    let output = flame_with(&["top", "-"], input);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(
        message.starts_with("flame: stdin: ") && !message.contains("panicked"),
        "{message}"
    );
    message
}

#[test]
fn damage_is_named_with_its_place() {
    let cut = gzip(STACKS.repeat(200).as_bytes());
    assert!(complaint(&cut[..cut.len() / 2]).contains("byte"));
    assert!(
        complaint("app;main 5\napp;main five\n").contains("line 2 (byte 11): no number at the end")
    );
    assert!(
        complaint("app;main 18446744073709551616\n")
            .contains("line 1 (byte 0): not a value below 2^64")
    );
    assert!(complaint("app;main 1e5\n").contains("not a value"));
    assert!(complaint("\0\0\0\0").contains("is not a profile"));
    assert!(
        complaint([
            0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff
        ])
        .contains("byte")
    );
    assert!(complaint([0x0a, 0x7f, 0x01]).contains("byte 2"));
    assert!(
        complaint("{\"tool\": \"x\", \"values\": [], \"stacks\": [{\"count\": -1}]}")
            .contains("not usekit's JSON")
    );
    let json = |stacks: &str| {
        format!(
            "{{\"tool\": \"x\", \"values\": [{{\"name\": \"a\", \"unit\": \"count\"}}], {stacks}}}"
        )
    };
    let frame = "{\"name\": \"f\"},".repeat(16_385);
    let deep = format!(
        "\"stacks\": [{{\"count\": 1, \"values\": [1], \"user\": [{}]}}]",
        frame.trim_end_matches(',')
    );
    assert!(complaint(json(&deep)).contains("more than 16,384 frames"));
    let odd = "\"stacks\": [{\"count\": 1, \"values\": [1, 2]}]";
    assert!(complaint(json(odd)).contains("not as many as their types"));
    assert!(complaint(json("\"x\": 1")).contains("missing field `stacks`"));
    assert!(complaint(&json(odd)[..40]).contains("byte 40"));
    assert!(complaint("a 1 [0] 1.5: 1 x:\n\t1 f (m)\n\nnonsense\n").contains("line 4"));
}

#[test]
fn speedscope_files_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let folded = crate::file(&dir, "a.folded", STACKS);
    let out = dir.path().join("a.speedscope.json");
    stdout(&crate::flame(&[
        "convert",
        crate::text(&folded),
        crate::text(&out),
    ]));
    let ours = std::fs::read(out).expect("a file");
    let others = r#"{"exporter": "speedscope@1.22.2", "shared": {"frames": []}, "profiles": []}"#;
    for input in [&*ours, &gzip(&ours), others.as_bytes()] {
        let message = complaint(input);
        assert!(
            message.contains("take the profile's .json or .pb.gz instead"),
            "{message}"
        );
    }
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_pprof_file_is_survived() {
    let output = flame_with(&["merge", "-"], STACKS);
    assert!(output.status.success());
    let dir = tempfile::tempdir().expect("a directory");
    let path = crate::file(&dir, "a.folded", STACKS);
    let out = dir.path().join("a.pb.gz");
    stdout(&crate::flame(&[
        "convert",
        crate::text(&path),
        crate::text(&out),
    ]));
    let mut plain = Vec::new();
    let compressed = std::fs::read(out).expect("a file");
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*compressed), &mut plain)
        .expect("gzip");
    for at in 0..plain.len() {
        let mut damaged = plain.clone();
        damaged[at] ^= 1 << (at % 8);
        for bytes in [&plain[..at], &damaged] {
            let read = std::panic::catch_unwind(|| {
                profile::read::read(bytes, &profile::read::ReadOptions::default())
            });
            assert!(read.is_ok(), "panic at {at}");
        }
    }
}

#[test]
fn long_names_are_cut_in_pictures_and_survive_elsewhere() {
    let name = "n".repeat(10 << 20);
    let input = format!("app;{name} 5\n");
    let svg = stdout(&flame_with(&["draw", "-"], &input));
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
    assert_eq!(stdout(&flame_with(&["merge", "-"], &input)), input);
    let line = format!("app;{} 5\n", "n".repeat(17 << 20));
    assert!(complaint(line).contains("line of more than 16 MiB"));
}

#[test]
fn sums_stop_at_the_largest_number() {
    let input = format!("a;f {}\na;g {}\n", u64::MAX, u64::MAX);
    let output = stdout(&flame_with(&["top", "-"], input));
    assert!(output.contains("f") && output.contains("g"), "{output}");
}

#[test]
fn nothing_from_a_file_reaches_the_terminal_raw() {
    let input = "ev\x1b[2Jil;main\u{202e};x\x07y 100\n";
    for args in [
        &["top", "-"][..],
        &["top", "-", "--by", "comm"],
        &["peek", "-", "."],
        &["merge", "-"],
        &["draw", "-"],
    ] {
        let output = stdout(&flame_with(args, input));
        assert!(
            !output.contains(['\x1b', '\x07', '\u{202e}']),
            "{args:?}: {output}"
        );
    }
}

#[test]
fn errors_show_names_from_files_escaped_and_on_one_line() {
    let duration =
        r#"{"tool": "x", "duration_ns": "\u001b]0;title\u0007\nflame: all is well\u202e"}"#;
    let dir = tempfile::tempdir().expect("a directory");
    let of_unit = |name: &str, unit: &str| {
        let text = format!(
            r#"{{"tool": "x", "values": [{{"name": "v\u001b[2J", "unit": "{unit}"}}],
                "stacks": [{{"count": 1, "values": [1], "user": [{{"name": "f"}}]}}]}}"#
        );
        crate::file(&dir, name, &text)
    };
    let files = [of_unit("a.json", r"x\n\u001b[31m"), of_unit("b.json", "y")];
    let [a, b] = [crate::text(&files[0]), crate::text(&files[1])];
    for (args, input) in [
        (&["top", "-"][..], duration),
        (&["merge", a, b], ""),
        (&["diff", a, b], ""),
        (&["top", a, "--value", "none\u{202e}"], ""),
    ] {
        let output = flame_with(args, input);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{args:?}: {message:?}");
        let is_raw = message.contains(['\x1b', '\x07', '\u{202e}']);
        assert!(message.contains('\\') && !is_raw, "{args:?}: {message:?}");
    }
}

#[test]
fn a_unit_makes_no_lines_of_perf_script_text() {
    let unit = r"x\n\nevil 1/1 [000] 0.0: 9 ev:\n\t1 injected+0x0 (m)\n\n";
    let input = format!(
        r#"{{"tool": "x", "values": [{{"name": "v", "unit": "{unit}"}}],
            "stacks": [{{"comm": "a", "count": 1, "values": [5], "user": [{{"name": "f"}}]}}]}}"#
    );
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.perf.txt");
    let converted = flame_with(&["convert", "-", crate::text(&path)], input);
    assert!(converted.status.success(), "{}", stderr(&converted));
    let text = std::fs::read_to_string(&path).expect("written");
    assert!(text.contains(r"injected"), "escaped, not left out: {text}");
    let stacks = stdout(&crate::flame(&["merge", crate::text(&path)]));
    assert!(
        stacks.contains("a;f ") && !stacks.contains("injected"),
        "{stacks}"
    );
}

/// Each of these is a few MB and unpacks to gigabytes, or takes many times as much in memory.
#[test]
fn small_json_files_of_large_values_are_refused() {
    let start = r#"{"tool": "x", "values": [{"name": "v", "unit": "count"}], "#;
    let stack = r#""stacks": [{"count": 1, "values": [1], "user": [{"name": "f"}]}]"#;
    let long = "n".repeat(65 << 20);
    let name = format!(
        r#"{start}"stacks": [{{"count": 1, "values": [1], "user": [{{"name": "{long}"}}]}}]}}"#
    );
    assert!(complaint(gzip(name.as_bytes())).contains("more than 64 MiB for a stack"));
    let comment = format!(r#"{start}"event": "{}", {stack}}}"#, &long[..17 << 20]);
    assert!(complaint(gzip(comment.as_bytes())).contains("16 MiB beside stacks"));
    let again = format!(r#""later": 0, "losses": "{}", "#, &long[..6 << 20]).repeat(3);
    assert!(complaint(gzip(format!("{start}{again}{stack}}}").as_bytes())).contains("16 MiB"));
    let values = format!(
        r#"{start}"stacks": [{{"count": 1, "values": [{}1]}}]}}"#,
        "1,".repeat(16_384)
    );
    assert!(complaint(values).contains("more than 16,384"));
    // What is not kept may be long.
    let later = format!(r#"{start}"later": "{}", {stack}}}"#, &long[..17 << 20]);
    let output = flame_with(&["merge", "-"], gzip(later.as_bytes()));
    assert_eq!(stdout(&output), "[empty];f 1\n");
}

/// Packed numbers take eight times the memory that they take in a file.
#[test]
fn pprof_samples_of_very_many_numbers_are_refused() {
    let packed = |tag: u8, count: u32| {
        let mut bytes = vec![tag];
        let mut left = count;
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes.extend(vec![0; count as usize]);
        bytes
    };
    let sample = |inner: &[u8]| {
        let mut bytes = packed(0x12, inner.len() as u32);
        bytes.truncate(bytes.len() - inner.len());
        [&[0x0a, 0, 0x32, 0][..], &bytes, inner].concat()
    };
    for (count, locations, values) in [
        (
            16_385,
            "more than 16,384 frames",
            "not as many as their types",
        ),
        (64 << 20, "more than 1 MiB", "more than 1 MiB"),
    ] {
        for (tag, expected) in [(0x0a, locations), (0x12, values)] {
            let message = complaint(gzip(&sample(&packed(tag, count))));
            assert!(message.contains(expected), "{message}");
        }
    }
    let labels = sample(&[0x1a, 0].repeat(16_385));
    assert!(complaint(gzip(&labels)).contains("more than 16,384"));
    let mut comments = sample(&[0x12, 1, 5]);
    comments.extend(packed(0x6a, 64 << 20));
    let output = flame_with(&["merge", "-"], gzip(&comments));
    assert!(output.status.success(), "{}", stderr(&output));
    // 3.2 GB, if all of them were kept.
    let mut comments = sample(&[0x12, 1, 5]);
    comments.extend(packed(0x6a, 1 << 20).repeat(400));
    let output = flame_with(&["merge", "-"], gzip(&comments));
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Tables that unpack to far more than the file are no reason to run out of memory.
#[test]
fn a_small_file_of_very_many_names_is_refused() {
    let mut document = vec![0x0a, 0x04, 0x08, 0x01, 0x10, 0x02];
    document.extend([0x32, 0x00].repeat((16 << 20) + 1));
    assert!(complaint(gzip(&document)).contains("more than 16,777,216 names"));
}

/// Objects of other writers may have their fields in another order; a file may have an object per interval.
#[test]
fn json_objects_add_up_whatever_the_order_of_their_fields() {
    let object = r#"{"stacks": [{"comm": "a", "count": 2, "values": [5], "user": [{"name": "f"}]}], "later": [{"x": 1}],
        "values": [{"name": "samples", "unit": "count"}], "tool": "profile", "duration_ns": 7}"#;
    let output = stdout(&flame_with(
        &["merge", "-"],
        format!("{object}\n{object} \n"),
    ));
    assert_eq!(output, "a;f 10\n");
}
