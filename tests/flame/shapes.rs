//! Inputs in the shapes that FlameGraph, inferno, speedscope and pprof have in their own tests, each read right.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

use crate::flame;

/// A shape, an input of it, what `flame merge` makes of that, and what it says beside it.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str);

const FOLDED: &[Row<'_>] = &[
    (
        "a stack a line",
        "a;b;c 1\na;b;d 4\na;b 5\n",
        "a;b 5\na;b;c 1\na;b;d 4\n",
        "",
    ),
    (
        "equal stacks add up",
        "a;b 1\na;c 2\na;b 3\n",
        "a;b 4\na;c 2\n",
        "",
    ),
    ("recursion", "a;b;a;b 2\na;a 1\n", "a;a 1\na;b;a;b 2\n", ""),
    (
        "lines that end in CR and LF",
        "a;b 1\r\na;c 4\r\n",
        "a;b 1\na;c 4\n",
        "",
    ),
    (
        "no end of the last line",
        "a;b 1\na;c 5",
        "a;b 1\na;c 5\n",
        "",
    ),
    (
        "one function a line",
        "main 3\nidle 2\n",
        "idle 2\nmain 3\n",
        "",
    ),
    ("numbers behind a tab", "a;b\t7\n", "a;b 7\n", ""),
    (
        "blanks in a name",
        "a;<T as F<U, V>>::f 2\n",
        "a;<T as F<U, V>>::f 2\n",
        "",
    ),
    (
        "a version in a name",
        "a;f@GLIBC_2.2.5 3\n",
        "a;f@GLIBC_2.2.5 3\n",
        "",
    ),
    (
        "marks of kinds",
        "a;m_[j];i_[i];read_[k] 4\n",
        "a;m_[j];i_[i];read_[k] 4\n",
        "",
    ),
    (
        "roots with IDs",
        "a-?/12;f 1\na-7/12;f 2\n",
        "a-7/12;f 2\na-?/12;f 1\n",
        "",
    ),
    (
        "comments and empty lines",
        "# austin: 3\n\na;f:12 2\n\n# duration: 9\n",
        "a;f:12 2\n",
        "",
    ),
    ("a number that ends in a point", "a;b 6.\n", "a;b 6\n", ""),
    (
        "fractions of zero",
        "a;b 31.0\na;c 2.00\n",
        "a;b 31\na;c 2\n",
        "",
    ),
    // The sum is 3.6, of which rounding each would leave 3.
    (
        "fractions",
        "a;b 1.4\na;c 1.4\na;d 0.4\na;e 0.4\n",
        "a;b 1\na;c 2\na;e 1\n",
        "4 values with a fraction rounded to whole ones, whose sum is right",
    ),
    (
        "small fractions alone",
        "a;b 0.25\na;b 0.25\na;b 0.25\na;b 0.25\n",
        "a;b 1\n",
        "4 values with a fraction rounded to whole ones, whose sum is right",
    ),
    (
        "lines without a number",
        "a;b 1\nTHIS IS BAD\na;c 2\nb;d\n",
        "a;b 1\na;c 2\n",
        "2 malformed lines left out; line 2 (byte 6): no number at the end",
    ),
    (
        "a comment of another kind, first",
        "# a comment\n// another\na;b 1\ninvalid line\n",
        "a;b 1\n",
        "2 malformed lines left out; line 2 (byte 12): no number at the end",
    ),
    (
        "a fraction that is none",
        "a;b 1\nBAD FRACTION 12V.43\n",
        "a;b 1\n",
        "1 malformed line left out; line 2 (byte 6): not a value below 2^64: 12V.43",
    ),
    (
        "a negative number",
        "a;b 1\na;c -4\n",
        "a;b 1\n",
        "1 malformed line left out; line 2 (byte 6): no number at the end",
    ),
    (
        "a blank at the end",
        "main 5 \nidle 2 \n",
        "idle 2\nmain 5\n",
        "",
    ),
    ("an empty file", "", "", "there are no stacks in it"),
];

const PERF: &[Row<'_>] = &[
    (
        "a period",
        "a 7 1.5: 250000 cycles:\n\t1 f+0x1 (/a)\n\t2 m+0x2 (/a)\n\n",
        "a;m;f 1\n",
        "",
    ),
    (
        "no period",
        "a 7 [001] 1.5: cycles: \n\t1 f (/a)\n\n",
        "a;f 1\n",
        "",
    ),
    ("no time", "a 7 cycles:\n\t1 f (/a)\n\n", "a;f 1\n", ""),
    (
        "a thread's ID alone",
        "a 7 \n\t1 f\n\nb 8 \n\t2 g\n\n",
        "a;f 1\nb;g 1\n",
        "",
    ),
    (
        "a thread's ID and a period",
        "a     7    2004008 \n\t1 f\n\na 7/7    2004008 \n\t1 f\n\n",
        "a;f 2\n",
        "",
    ),
    (
        "places in the sources",
        "a 7 1.5: 1 cycles:\n\t1 f (/a b)\n  a.so[1]\n\t2 m (/a b)\n  m.c:74\n\n",
        "a;m;f 1\n",
        "",
    ),
    (
        "records of names, mappings and ends",
        "a 0 0.000000: PERF_RECORD_COMM: a:7/7\na 0 0.000000: PERF_RECORD_MMAP2 7/7: [0x1(0x1) @ 0 0:0 0 0]: r-xp /a\n\
         a 7 1.5: 1 cycles:\n\t1 f (/a)\n\na 7 1.6: PERF_RECORD_EXIT(7:7):(1:1)\na 8 1.7: 1 cycles:\n\t1 f (/a)\n\n",
        "a;f 2\n",
        "",
    ),
    (
        "a process and a thread",
        "a 7/8 [000] 1.5: 1 cycles:\n\t1 f (/a)\n",
        "a;f 1\n",
        "",
    ),
    (
        "a name with blanks",
        "V8 Worker 7 1.5: 1 cycles:\n\t1 f (/a)\n",
        "V8 Worker;f 1\n",
        "",
    ),
    (
        "a thread that is gone",
        ":-1 -1/-1 [000] 1.5: 1 cycles:\n\t1 f (/a)\n",
        ":-1;f 1\n",
        "",
    ),
    (
        "perf's comments",
        "# ========\n# nrcpus : 4\n#\na 7 1.5: 1 cycles:\n\t1 f (/a)\n",
        "a;f 1\n",
        "",
    ),
    (
        "a stack on the event's line",
        "a 7 1.5: 1 cycles:u: 7f f+0x4 (/a)\na 7 1.6: 1 cycles:u: 7f f+0x4 (/a)\n",
        "a;f 2\n",
        "",
    ),
    (
        "a tracepoint",
        "a 7 [000] 1.5: sched:sched_switch: a:7 [120] S ==> b:8 [120]\n\t1 f (/a)\n\n",
        "a;f 1\n",
        "",
    ),
    (
        "no stack",
        "a 7 1.5: 1 cycles:\n\na 7 1.6: 1 cycles:\n\t1 f (/a)\n",
        "a 1\na;f 1\n",
        "",
    ),
    (
        "no indentation",
        "java 7 cycles:\nff8103d0ca f ([kernel.kallsyms])\n7f71 LBusy;::main (/tmp/perf-7.map)\n\n",
        "java;LBusy:::main_[j];f_[k] 1\n",
        "",
    ),
    (
        "inlined functions",
        "a 7 1.5: 1 cycles:\n\t1 g (inlined)\n\t1 f (/a)\n\n",
        "a;f;g_[i] 1\n",
        "",
    ),
    (
        "templates",
        "a 7 1.5: 1 cycles:\n\t1 std::function<void (int)>::operator()(int) const+0x3 (/a b)\n",
        "a;std::function<void (int)>::operator()(int) const 1\n",
        "",
    ),
    (
        "no symbol",
        "a 7 1.5: 1 cycles:\n\t1 [unknown] (/usr/lib/libc-2.27.so)\n\t0 [unknown] ([unknown])\n",
        "a;[unknown];[libc-2.27.so] 1\n",
        "",
    ),
    (
        "a kernel with its version, a module of it",
        "a 7 1.5: 1 cycles:\n\tffffffff81 f (/usr/lib/debug/boot/vmlinux-5.4.14)\n\tffffffffc0 g (/lib/modules/5/mlx5.ko.xz)\n",
        "a;g_[k];f_[k] 1\n",
        "",
    ),
    (
        "code of a JIT",
        "a 7 1.5: 1 cycles:\n\t1 f (/tmp/perf-7.map)\n\t2 g (/tmp/jitted-7-4145.so)\n",
        "a;g_[j];f_[j] 1\n",
        "",
    ),
    (
        "two kinds of events",
        "a 7 1.5: 1 instructions:\n\t1 f (/a)\n\na 7 1.6: 1 cycles:\n\t1 g (/a)\n\n",
        "a;f 1\n",
        "shows instructions; --event NAME shows another: cycles (1)",
    ),
    (
        "an odd line in a stack",
        "a 7 1.5: 1 cycles:\n\t1 f (/a)\n\na 7 1.6: 1 cycles:\n\t THIS_IS_ODD\n",
        "a;f 1\n",
        "1 malformed line left out, each with its event; line 5 (byte 49): neither an event nor a line of its stack: THIS_IS_ODD",
    ),
    (
        "an empty line before a stack",
        "a 7 1.5: 1 cycles:\n\n\t1 f (/a)\n\n",
        "a;f 1\n",
        "",
    ),
    (
        "an odd line before the first event",
        "warning: it is slow\na 7 1.5: 1 cycles:\n\t1 f (/a)\n",
        "a;f 1\n",
        "1 malformed line left out, each with its event; line 1 (byte 0): neither an event nor a line of its stack: warning: it is slow",
    ),
];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).expect("memory");
    gzip.finish().expect("memory")
}

#[test]
fn shapes_of_text_are_read_right() {
    for (shape, input, stacks, said) in FOLDED.iter().chain(PERF) {
        for input in [input.as_bytes(), &gzip(input.as_bytes())] {
            let run = flame("merge -", input);
            assert_eq!(run.stdout, *stacks, "{shape}: {}", run.stderr);
            let said = match *said {
                "" => String::new(),
                said => format!("flame: stdin: {said}\n"),
            };
            assert_eq!((run.code, run.stderr), (Some(0), said), "{shape}");
        }
    }
}

/// A field of a protocol buffer.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("a small one");
    [&[number << 3 | 2, length], content].concat()
}

/// A pprof profile: its types of values, its mappings and samples of two locations, of which the first has two functions.
fn pprof(types: &[&[u8]], rest: &[Vec<u8>]) -> Vec<u8> {
    let types = types.iter().flat_map(|content| field(1, content));
    let tables = [
        field(
            4,
            &[0x08, 1, 0x18, 0x40, 0x22, 2, 0x08, 1, 0x22, 2, 0x08, 2],
        ),
        field(4, &[0x08, 2, 0x18, 0x50]),
        field(5, &[0x08, 1, 0x10, 5]),
        field(5, &[0x08, 2, 0x10, 6]),
    ];
    let names = [
        "", "objects", "count", "space", "bytes", "inner", "outer", "/bin/a",
    ];
    let strings = names.iter().flat_map(|name| field(6, name.as_bytes()));
    let tables = rest.iter().chain(&tables).flatten().copied();
    types.chain(tables).chain(strings).collect()
}

const COUNT: &[u8] = &[0x08, 1, 0x10, 2];
const SPACE: &[u8] = &[0x08, 3, 0x10, 4];

/// A sample of both locations with one value.
fn one_value() -> Vec<u8> {
    field(2, &[0x0a, 2, 1, 2, 0x12, 1, 9])
}

/// Result of `flame merge` for a document, compressed or not, and how what it says beside it begins.
#[track_caller]
fn assert_merged(input: &[u8], stacks: &str, said: &str) {
    for input in [input, &gzip(input)] {
        let run = flame("merge -", input);
        assert_eq!(run.stdout, stacks, "{}", run.stderr);
        let is_said = match said {
            "" => run.stderr.is_empty(),
            said => run.stderr.starts_with(&format!("flame: stdin: {said}")),
        };
        assert!(is_said, "{}", run.stderr);
    }
}

#[test]
fn shapes_of_pprof_are_read_right() {
    let two_values = field(2, &[0x08, 1, 0x08, 2, 0x10, 3, 0x10, 9]);
    let stack = |value: u8| format!("[empty];0x50;outer;inner_[i] {value}\n");
    let one = pprof(&[COUNT], &[one_value()]);
    assert_merged(&one, &stack(9), "");
    // The last of several values, unless there is a default.
    let several = pprof(&[COUNT, SPACE], std::slice::from_ref(&two_values));
    let said = "shows space; --value NAME shows another: objects";
    assert_merged(&several, &stack(9), said);
    let default = pprof(&[COUNT, SPACE], &[two_values, vec![0x70, 1]]);
    let said = "shows objects; --value NAME shows another: space";
    assert_merged(&default, &stack(3), said);
    let unused_mapping = field(3, &[0x08, 1, 0x28, 7]);
    let mapped = pprof(&[COUNT], &[unused_mapping, one_value()]);
    assert_merged(&mapped, &stack(9), "");
    assert_merged(&pprof(&[COUNT], &[]), "", "there are no stacks in it");
}

#[test]
fn shapes_of_pprof_that_are_none_are_refused() {
    let negative = [&[0x0a, 1, 1, 0x12, 10][..], &[0xff; 9], &[1]].concat();
    let difference = pprof(&[COUNT], &[field(2, &negative)]);
    assert_merged(&difference, "", "byte 8: a negative value: a difference");
    let whole = pprof(&[COUNT], &[one_value()]);
    let twice = [&*whole, &whole].concat();
    assert_merged(&twice, "", "byte 8: several profiles in one file");
    let fewer = pprof(&[COUNT, SPACE], &[one_value()]);
    assert_merged(&fewer, "", "byte 14: a sample's values are not as many");
    assert_merged(&whole[..whole.len() - 2], "", "byte");
}
