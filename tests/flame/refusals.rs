//! Files that are no profiles that flame reads are refused on one line, by name: what FlameGraph, inferno, speedscope and pprof have in their
//! own tests, among others.

use crate::flame;

const NO_STACKS: &str = "is not a profile but text: no line is a stack with a number or";

/// A shape, an input of it, and the reason for which it is refused.
const REFUSED: &[(&str, &[u8], &str)] = &[
    (
        "differences",
        b"a;b 31 56\na;c 6 2\n",
        "is a difference of two profiles, with two numbers a line",
    ),
    (
        "differences, one of them damaged",
        b"a;b 31 56\na;c\na;d 6 2\n",
        "is a difference of two profiles",
    ),
    ("stacks without numbers", b"a;b one\na;c two\n", NO_STACKS),
    ("prose", b"Hello\n\nWorld", NO_STACKS),
    (
        "prose with a number",
        b"Version 2\nof this and that\nand more\n",
        "is no folded profile: 2 malformed lines; line 2 (byte 10): no number",
    ),
    (
        "comments, as pprof prints those of a profile",
        b"made by hand\n#not for everybody\n",
        NO_STACKS,
    ),
    ("sources", b"line 1;\nline 2;\nreturn 0;\n", NO_STACKS),
    (
        "an event of which nothing is left",
        b"a 7 1.5: 1 cycles:\n\tODD\n\n",
        "is no perf script text: 1 malformed line; line 2 (byte 19): neither",
    ),
    (
        "a cut gzip header",
        b"\x1f\x8b",
        "byte 0: compressed data ends too early",
    ),
    (
        "a palette",
        b"->rgb(255,230,55)\nmain->rgb(1,2,3)\n",
        "is a palette of flamegraph.pl",
    ),
    (
        "a .DS_Store",
        b"\0\0\0\x01Bud1\0\0\x10\0",
        "is not a profile: neither text, nor pprof,",
    ),
];

/// Beginnings of files in other formats, and what the refusal calls them.
const OTHERS: &[(&[u8], &str)] = &[
    (b"{\"typeId\":\"CPU\",\"head\":{\"functionName\":\"(root)\"", "a CPU profile of V8"),
    (b"Showing nodes accounting for 93.75MB, 95% of 98MB total\n", "pprof's text"),
    (b"digraph \"a\" {\nnode [style=filled]\n", "a graph"),
    (b"@ inst_retired.any [35705 samples]\n\n20.86%  [7447]  main\n", "the text of pmcstat"),
    (b"{\"$schema\":\"a\",\"profiles\":[]", "speedscope's JSON"),
    (b"{\"version\":\"0.0.1\",\"shared\":{\"frames\":[", "speedscope's JSON"),
    (b"{\"profiles\":[{\"type\":\"sampled\",\"name\":\"a\",\"unit\":\"none\",\"startValue\":0,\"endValue\":1,\"samples\":[[0],", "speedscope's JSON"),
    (b"{\"profiles\":[{\"type\":\"evented\",\"name\":\"a\",\"unit\":\"none\",\"startValue\":0,\"endValue\":1,\"events\":[{", "speedscope's JSON"),
    (b"PERFILE2h\0\0\0", "perf's raw data"),
    (b"FLR\0\0\x02\0\x01", "a recording of Java's Flight Recorder"),
    (b"PK\x03\x04\x14\0", "a zip archive"),
    (b"\x7fELF\x02\x01\x01", "a program"),
    (b"gmon\x01\0\0\0", "gprof's data"),
    (b"\xff\xfea\0;\0b\0 \x001\0", "text in UTF-16"),
    (b"\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0P'\0\0", "an old CPU profile of gperftools"),
    (b"\0\0\0\0\x03\0\0\0\x01\0\0\0P'\0\0", "an old CPU profile of gperftools"),
    (b"heap profile: 13: 15 [47: 25] @ heap/1048576\n1: 5 [3: 1] @ 0x4", "an old heap profile"),
    (b"goroutine profile: total 7\n1 @ 0x44cb3 0x45045\n", "Go's text"),
    (b"--- contentionz 1 ---\ncycles/second = 3201000000\n", "an old profile in pprof's text"),
    (b"{\"traceEvents\": [{\"name\": \"a\"}]}", "a trace of events"),
    (b"[\n{\"name\":\"a\",\"ph\":\"B\",\"ts\":1},", "a trace of events"),
    (b"{\"nodes\":[{\"id\":1,\"callFrame\":{}}]}", "a CPU profile of V8"),
    (b"{\"head\":{\"callFrame\":{}}}", "a heap profile of V8"),
    (b"{\n\"program\": \"a\",\n\"cost_centres\": [", "a profile of GHC"),
    (b"{\"version\":1.2,\"mode\":\"wall\",\"missed_samples\":0,\"frames\":{}}", "a profile of Ruby's stackprof"),
    (b"{\"version\":1,\"recording\":{\"displayName\":\"x\"", "a recording of Safari"),
    (b"{\"meta\":{\"interval\":1,\"version\":29},\"libs\":[]", "a profile of Firefox"),
    (b"{\"label\":\"a\",\"markers\":[],\"frames\":[],\"allocations\":{}", "a recording of Firefox"),
    (b"<?xml version=\"1.0\"?>\n<trace-query-result>\n", "XML"),
    (b"<svg xmlns=\"http://www.w3.org/2000/svg\">", "a picture"),
    (b"<!DOCTYPE html>\n<html>", "a page"),
    (b"Analysis of sampling rg (pid 6) every 1 millisecond\n", "the text of macOS's sample"),
    (b"Function Stack,CPU Time:Self,Module\nTotal,0.0,[Unknown]\n", "a table of VTune"),
    (b"\xef\xbb\xbfLevel,Function Name,Number of Calls,\r\n", "a table of Visual Studio"),
    (b"v8-version,6,0,287,53,0\n", "V8's log"),
    (b"\tSun Aug  6 Time and Allocation Profiling Report  (Final)\n", "a report of GHC"),
    (b"Weight\tSelf Weight\t\tSymbol Name\n96 Gc\t-\t\tmain\n", "a table of Instruments"),
    (b"version: 1\ncreator: callgrind-3.1\nevents: Ir\n\nfl=(1)\nfn=(1) main\n1 2\n", "callgrind's data"),
    (b"Attaching 1 probe...\n\n@[\n    schedule+46\n    do_nanosleep+113\n]: 12\n", "a map of bpftrace's"),
    (b"CPU     ID                    FUNCTION:NAME\n  8  35077  :tick-60s\n", "DTrace's stacks"),
    (b"\n\n              genunix`syscall_mstate+0x5e\n              unix`0xfb\n                5\n", "DTrace's stacks"),
    (b"\t    5581e2d4c1a9 fib\n\t    7f0a12b4d24a main\n\n", "perf script text without the samples' own lines"),
    (b"my app \n\t5581e2d4c1a9 fib\n\t7f0a12b4d24a main\n\n", "perf script text without the threads' IDs"),
    (b"app  1.5: cycles: \n\t5581e2d4c1a9 fib (/app)\n\n", "perf script text without the threads' IDs"),
    (b"16134 \n\tffffffff821c7894\n\n", "perf script text without the threads' IDs"),
    (b"{\"version\":3,\"sources\":[],\"mappings\":\"AAAA\"}", "a source map"),
    (b"File: a\nType: cpu\nShowing nodes accounting for 1s, 100% of 1s total\n", "pprof's text"),
    (b"Active filters:\n   focus=[12]00\n", "pprof's text"),
    (b"PeriodType: cpu nanoseconds\nPeriod: 10000000\nSamples:\n", "pprof's text"),
    (b"Build ID: a\nType: cpu\n-----------+---------------\n     1s   f\n", "pprof's text"),
    (b"Total: 9\nROUTINE ======================== f in /a\n", "pprof's text"),
    (b"# ignored\n\nsub/dir-x.y profile: total 9\n", "Go's text"),
    (b"{\n  \"code\": [{\"name\":\"/bin/node\",\"type\":\"SHARED_LIB\"}]", "V8's log"),
    (b"Script_abc log opened (PC)\n500:PUSH:3053:1:a (2):b..f\n", "a log of Papyrus"),
    (b"\xcf\xfa\xed\xfe\x07\0\0\x01", "a program"),
    (b"MZ\x90\0\x03\0\0\0", "a program"),
    (b"2ELIFREPh\0\0\0", "perf's raw data"),
    (b"(\xb5/\xfd\x04X\x11\0\0hey", "data of zstd"),
    (b"\xfd7zXZ\0\0\x04\xe6\xd6", "data of xz"),
    (b"BZh91AY&SY\xa9\xba", "data of bzip2"),
    (b"\x04\"M\x18d@\xa7", "data of lz4"),
    (b"JAVA PROFILE 1.0.2\0\0\0\0\x08", "a dump of Java's hprof"),
    (b"JAVA PROFILE 1.0.1, created Mon Nov  2 10:00:00 2026\n\nHeader for -agentlib:hprof\n", "a dump of Java's hprof"),
    (b"\xfb)\x03\xfa\x08<string>\xe9\x01\0\0\0", "a profile of Python's cProfile"),
    (b"{)\x03\xfa\x08<string>\xe9\x01\0\0\0", "a profile of Python's cProfile"),
    (b"Nettrace\x14\0\0\0!FastSerialization.1", "a trace of .NET"),
    (b"--- mutex:\ncycles/second=2400000000\nsampling period=1\n99 3 @ 0x4a 0x4b\n", "Go's text"),
    (b"--- contention:\ncycles/second=2400000000\n99 3 @ 0x4a 0x4b\n", "Go's text"),
    (b"goroutine 7 [running]:\nmain.f()\n\t/a.go:5 +0x1d\n\ngoroutine 1 [select]:\n", "Go's text of goroutines"),
    (b" key1: Total 1.1s of 1.1s (  100%)\n        1s (89.29%): tag1\n", "pprof's text"),
    (b"shared-library,/usr/bin/node,0x400000,0x1a\ntick,0x4a,5\n", "V8's log"),
    (b"profiler,begin,1000\ncode-creation,Builtin,3,0x4,1,Abort\n", "V8's log"),
    (b"[12/03/2020 - 04:10:18PM] Papyrus log opened (PC)\n[12/03/2020 - 04:10:18PM] Update budget: 1\n", "a log of Papyrus"),
    (b"\nmain\tclass=a\todd=b;c\nidle\tid=d\n", "a list of boxes' attributes for flamegraph.pl"),
    (b"idle\thref=https://localhost/?a=7\n", "a list of boxes' attributes for flamegraph.pl"),
    (b"42 3 \ta.B.f(B.java:7)\n\ta.C.g(Unknown:-1)\n\ta.D.run(D.java:9)\n\nTotal trace count = 42\n", "the stacks of a lightweight Java profiler"),
    (b" 42 2  f(Native Method)\n       g(B.java:1)\n Total 42\n", "the stacks of a lightweight Java profiler"),
    (b"Version: 3.1.5\nFile format: 4\nTRACE START [2026-11-02 10:00:00]\n1\t0\t0\t0.2\t39\t{main}\t1\t\t/a.php\t0\n", "a trace of Xdebug"),
    (b"TRACE START [2026-11-02 10:00:00]\n  0.1  114  -> {main}() /a.php:0\n", "a trace of Xdebug"),
    (b" 0xffffffff8103ce3b : native_safe_halt+0xb/0x10 [kernel]\n\t2404\n", "SystemTap's stacks"),
    (b"# Total Lost Samples: 0\n#\n# Overhead  Command  Symbol\n    9.5%  a  [.] f\n", "perf report's text"),
    (b"\"a\" #1 prio=5 tid=0x7f nid=0xe3c runnable\n   java.lang.Thread.State: RUNNABLE\n\tat java.lang.Thread.run(T.java:5)\n", "jstack's stacks"),
    (b"3XMTHREADINFO3  Java callstack:\n4XESTACKTRACE   at java/lang/Thread.run(T.java:5)\n", "a dump of IBM's Java"),
    (b"10:00 ERROR x\njava.io.IOException: y\n\tat java.io.F.read(F.java:5)\n", "a log of Java's exceptions"),
    (b"PID 7 - process\nTID 7:\n#0  0x00007f read\n#1  0x0000 main\n", "eu-stack's stacks"),
    (b"\nThread 1 (Thread 0x7f (LWP 7)):\n#0  read () at r.c:26\n#1  main ()\n", "gdb's stacks"),
    (b"Timeout (0:00:01)!\nThread 0x00007f (most recent call first):\n  File \"a.py\", line 5 in f\n", "faulthandler's stacks"),
    (b"7: a.out\n---------- tid# 3342 ----------\n0x1000 main(0x1, 0x2) + 0x9\n", "procstack's stacks"),
    (b"9 samples\n\nFull stacks:\n\n50.0% =====  (4 samples)\n  1: main\n", "wallClockProfiler's stacks"),
    (b"desc: -\ncmd: a\ntime_unit: i\n#-----------\nsnapshot=0\nheap_tree=empty\n", "massif's data"),
    (b"<?xml version=\"1.0\"?>\n<!DOCTYPE svg>\n<svg version=\"1.1\">\n", "a picture"),
];

#[test]
fn shapes_that_are_not_read_are_refused_by_name() {
    for (shape, input, why) in REFUSED {
        let run = flame("merge -", input);
        assert_eq!((run.code, &*run.stdout), (Some(1), ""), "{shape}");
        let said = run.stderr.strip_prefix("flame: stdin: ").expect(shape);
        assert!(said.starts_with(why), "{shape}: {said}");
        assert_eq!(said.lines().count(), 1, "{shape}: {said}");
    }
}

#[test]
fn other_formats_are_refused_by_name_with_a_remedy() {
    for (input, name) in OTHERS {
        let said = flame("merge -", input).fails(1);
        let start = format!("flame: stdin: is {name}, which is not read: ");
        assert!(
            said.starts_with(&start) && said.len() > start.len() + 5,
            "{name}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
