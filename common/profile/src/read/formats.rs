//! Formats of other tools: their beginnings, their names, and what brings their content here or shows it.

/// A beginning that a format is known by.
pub(super) enum Shape {
    /// First bytes.
    Magic(&'static [u8]),
    /// First text, behind white space and a byte order mark.
    Starts(&'static str),
    /// Text in the first line that is no comment, and no path of functions.
    Head(&'static str),
    /// Lines that begin so, behind white space, each somewhere.
    Lines(&'static [&'static str]),
    /// JSON whose beginning has all of these keys.
    Keys(&'static [&'static str]),
    /// A frame a line, which begins so and has this in it, and below them a line with their number.
    Counted(&'static str, &'static str),
    /// A first line of a function and, behind a tab, an attribute of one of these names.
    Attributes(&'static [&'static str]),
    /// A first line of two numbers and a frame that ends in its place.
    Weighed,
    /// Frames of `perf script` alone: an address and a name a line.
    PerfFrames,
    /// Its frames behind a line that names no thread by its ID.
    PerfNameless,
}

use Shape::{
    Attributes, Counted, Head, Keys, Lines, Magic, PerfFrames, PerfNameless, Starts, Weighed,
};

const OLD_CPU: &str = "an old CPU profile of gperftools";
const UTF_16: &str = "text in UTF-16";
const TO_UTF_8: &str = "iconv -f UTF-16 -t UTF-8 FILE converts it";
const TO_PPROF: &str = "go tool pprof -proto -output OUT.pb.gz FILE makes one of it that is";
const PERFETTO: &str = "https://ui.perfetto.dev shows it";
const SPEEDSCOPE: &str = "https://www.speedscope.app shows it";
const PRINTED: &str = "give the profile that it was printed from";
const OF_IT: &str = "give a profile of it";
const V8_LOG: &str =
    "node --prof-process FILE prints it, with --preprocess for https://www.speedscope.app";
const PERF_RAW: &str = "perf script -i FILE prints what is read";
const OWN: &str = "take the .json or .pb.gz of the same run; https://www.speedscope.app shows it";
const FOLDS_DTRACE: &str = "inferno-collapse-dtrace or stackcollapse.pl folds it";

/// The first that a beginning has the shape of is its format.
pub(super) const FORMATS: &[(Shape, &str, &str)] = &[
    // Binary ones.
    (Magic(b"PERFILE2"), "perf's raw data", PERF_RAW),
    (Magic(b"2ELIFREP"), "perf's raw data", PERF_RAW),
    (
        Magic(b"FLR\0"),
        "a recording of Java's Flight Recorder",
        "async-profiler's jfrconv folds it",
    ),
    (Magic(b"PK\x03\x04"), "a zip archive", "unpack it"),
    (Magic(b"\x7fELF"), "a program", OF_IT),
    (Magic(b"\xcf\xfa\xed\xfe"), "a program", OF_IT),
    (Magic(b"MZ\x90\0"), "a program", OF_IT),
    (
        Magic(b"gmon\x01\0\0\0"),
        "gprof's data",
        "gprof PROGRAM FILE prints it",
    ),
    (Magic(b"\xff\xfe"), UTF_16, TO_UTF_8),
    (Magic(b"\xfe\xff"), UTF_16, TO_UTF_8),
    // gperftools': 64 or 32 bits wide, in either order: https://gperftools.github.io/gperftools/cpuprofile-fileformat.html
    (Magic(b"\0\0\0\0\0\0\0\0\x03\0\0\0"), OLD_CPU, TO_PPROF),
    (Magic(b"\0\0\0\0\x03\0\0\0"), OLD_CPU, TO_PPROF),
    (
        Magic(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03"),
        OLD_CPU,
        TO_PPROF,
    ),
    (Magic(b"\0\0\0\0\0\0\0\x03\0\0\0\0"), OLD_CPU, TO_PPROF),
    (
        Magic(b"(\xb5/\xfd"),
        "data of zstd",
        "zstd -d FILE unpacks it",
    ),
    (Magic(b"\xfd7zXZ\0"), "data of xz", "xz -dk FILE unpacks it"),
    (
        Magic(b"BZh91AY&SY"),
        "data of bzip2",
        "bzip2 -dk FILE unpacks it",
    ),
    (
        Magic(b"\x04\"M\x18"),
        "data of lz4",
        "lz4 -d FILE unpacks it",
    ),
    (
        Magic(b"JAVA PROFILE 1.0"),
        "a dump of Java's hprof",
        "asprof -d 30 -o collapsed PID makes a profile",
    ),
    (
        Magic(b"\xfb)\x03"),
        "a profile of Python's cProfile",
        "python3 -m pstats FILE prints it",
    ),
    (
        Magic(b"{)\x03"),
        "a profile of Python's cProfile",
        "python3 -m pstats FILE prints it",
    ),
    (
        Magic(b"Nettrace"),
        "a trace of .NET",
        "dotnet-trace convert --format Speedscope FILE makes one for https://www.speedscope.app",
    ),
    // pprof's old text.
    (Starts("heap profile:"), "an old heap profile", TO_PPROF),
    (Head(" profile: total "), "Go's text", TO_PPROF),
    (Head(" 1 ---"), "an old profile in pprof's text", TO_PPROF),
    (Head("--- mutex:"), "Go's text", TO_PPROF),
    (Head("--- contention:"), "Go's text", TO_PPROF),
    (
        Lines(&["goroutine 1 ["]),
        "Go's text of goroutines",
        "/debug/pprof/goroutine without debug=2 is one that is",
    ),
    (Head(": Total "), "pprof's text", PRINTED),
    // JSON.
    (Keys(&["shared", "frames"]), "speedscope's JSON", OWN),
    (Keys(&["$schema", "profiles"]), "speedscope's JSON", OWN),
    (Keys(&["profiles", "startValue"]), "speedscope's JSON", OWN),
    (Keys(&["traceEvents"]), "a trace of events", PERFETTO),
    (Keys(&["ph", "ts"]), "a trace of events", PERFETTO),
    (
        Keys(&["nodes", "callFrame"]),
        "a CPU profile of V8",
        SPEEDSCOPE,
    ),
    (
        Keys(&["head", "callFrame"]),
        "a heap profile of V8",
        SPEEDSCOPE,
    ),
    (
        Keys(&["head", "functionName"]),
        "a CPU profile of V8",
        SPEEDSCOPE,
    ),
    (Keys(&["cost_centres"]), "a profile of GHC", SPEEDSCOPE),
    (
        Keys(&["missed_samples"]),
        "a profile of Ruby's stackprof",
        "stackprof --stackcollapse folds it",
    ),
    (
        Keys(&["sampleStackTraces"]),
        "a recording of Safari",
        SPEEDSCOPE,
    ),
    (
        Keys(&["recording", "displayName"]),
        "a recording of Safari",
        SPEEDSCOPE,
    ),
    (
        Keys(&["meta", "interval"]),
        "a profile of Firefox",
        "https://profiler.firefox.com shows it",
    ),
    (
        Keys(&["markers", "allocations"]),
        "a recording of Firefox",
        SPEEDSCOPE,
    ),
    (Keys(&["code", "SHARED_LIB"]), "V8's log", SPEEDSCOPE),
    (
        Keys(&["mappings", "sources"]),
        "a source map",
        "give a profile",
    ),
    // Text and tables.
    (
        Lines(&["<svg"]),
        "a picture",
        "give the profile that it was drawn from",
    ),
    (
        Starts("<?xml"),
        "XML",
        "inferno-collapse-xctrace folds that of xctrace",
    ),
    (
        Starts("<!DOCTYPE html"),
        "a page",
        "give the profile that it shows",
    ),
    (
        Starts("Analysis of sampling"),
        "the text of macOS's sample",
        "inferno-collapse-sample folds it",
    ),
    (
        Starts("Function Stack,"),
        "a table of VTune",
        "inferno-collapse-vtune folds it",
    ),
    (
        Starts("Level,Function Name,"),
        "a table of Visual Studio",
        "inferno-collapse-vsprof folds it",
    ),
    (Starts("Showing nodes"), "pprof's text", PRINTED),
    (Starts("Active filters:"), "pprof's text", PRINTED),
    (Starts("PeriodType:"), "pprof's text", PRINTED),
    (Lines(&["Type: ", "Showing nodes"]), "pprof's text", PRINTED),
    (Lines(&["-----------+----"]), "pprof's text", PRINTED),
    (Lines(&["ROUTINE ======"]), "pprof's text", PRINTED),
    (
        Starts("digraph "),
        "a graph",
        "give the profile that it shows",
    ),
    (Starts("@ "), "the text of pmcstat", SPEEDSCOPE),
    (Head(" log opened (PC)"), "a log of Papyrus", SPEEDSCOPE),
    (
        Head("->rgb("),
        "a palette of flamegraph.pl",
        "give the profile that it colours",
    ),
    (
        Attributes(&[
            "a_extra", "class", "g_extra", "href", "id", "style", "target", "title",
        ]),
        "a list of boxes' attributes for flamegraph.pl",
        "give the profile that it is for",
    ),
    (Starts("v8-version,"), "V8's log", V8_LOG),
    (Starts("shared-library,"), "V8's log", V8_LOG),
    (Lines(&["code-creation,"]), "V8's log", V8_LOG),
    (
        Head("Time and Allocation Profiling Report"),
        "a report of GHC",
        "inferno-collapse-ghcprof folds it",
    ),
    (Head("\tSymbol Name"), "a table of Instruments", SPEEDSCOPE),
    (
        Lines(&["events:", "fn="]),
        "callgrind's data",
        "callgrind_annotate or KCachegrind shows it",
    ),
    (
        Lines(&["@[", "]:"]),
        "a map of bpftrace's",
        "stackcollapse-bpftrace.pl folds it",
    ),
    (Head("FUNCTION:NAME"), "DTrace's stacks", FOLDS_DTRACE),
    (Counted("", "`"), "DTrace's stacks", FOLDS_DTRACE),
    (
        Counted("0x", " : "),
        "SystemTap's stacks",
        "stackcollapse-stap.pl folds it",
    ),
    (
        Lines(&["# Overhead "]),
        "perf report's text",
        "perf script prints what is read",
    ),
    (
        Lines(&["TRACE START ["]),
        "a trace of Xdebug",
        "stackcollapse-xdebug.php folds it",
    ),
    (
        Lines(&["java.lang.Thread.State:"]),
        "jstack's stacks",
        "stackcollapse-jstack.pl folds it",
    ),
    (
        Lines(&["4XESTACKTRACE"]),
        "a dump of IBM's Java",
        "stackcollapse-ibmjava.pl folds it",
    ),
    (
        Lines(&["at java."]),
        "a log of Java's exceptions",
        "stackcollapse-java-exceptions.pl folds it",
    ),
    (
        Weighed,
        "the stacks of a lightweight Java profiler",
        "stackcollapse-ljp.awk folds them",
    ),
    (
        Lines(&["PID ", "TID ", "#0 "]),
        "eu-stack's stacks",
        "stackcollapse-elfutils.pl folds it",
    ),
    (
        Lines(&["Thread ", "#0 "]),
        "gdb's stacks",
        "stackcollapse-gdb.pl folds it",
    ),
    (
        Lines(&["Thread 0x", "File \""]),
        "faulthandler's stacks",
        "stackcollapse-faulthandler.pl folds it",
    ),
    (
        Lines(&["---------- tid# "]),
        "procstack's stacks",
        "stackcollapse-aix.pl folds it",
    ),
    (
        Lines(&["Full stacks"]),
        "wallClockProfiler's stacks",
        "stackcollapse-wcp.pl folds it",
    ),
    (
        Lines(&["snapshot=", "heap_tree="]),
        "massif's data",
        "ms_print FILE prints it",
    ),
    (
        PerfFrames,
        "perf script text without the samples' own lines",
        "perf script -F comm,pid,tid,time,event,ip,sym,dso prints them",
    ),
    (
        PerfNameless,
        "perf script text without the threads' IDs",
        "perf script -F comm,pid,tid,time,event,ip,sym,dso prints them",
    ),
];
