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
    /// DTrace's stacks: a frame a line, and below them a line with their number.
    Dtrace,
    /// Frames of `perf script` alone: an address and a name a line.
    PerfFrames,
}

use Shape::{Dtrace, Head, Keys, Lines, Magic, PerfFrames, Starts};

const TO_PPROF: &str = "go tool pprof -proto -output OUT.pb.gz FILE makes one of it that is";
const PERFETTO: &str = "https://ui.perfetto.dev shows it";
const SPEEDSCOPE: &str = "https://www.speedscope.app shows it";
const PRINTED: &str = "give the profile that it was printed from";
const OF_IT: &str = "give a profile of it";
const OWN: &str = "take the .json or .pb.gz of the same run; https://www.speedscope.app shows it";
const FOLDS_DTRACE: &str = "inferno-collapse-dtrace or stackcollapse.pl folds it";

/// The first that a beginning has the shape of is its format.
pub(super) const FORMATS: &[(Shape, &str, &str)] = &[
    // Binary ones.
    (
        Magic(b"PERFILE2"),
        "perf's raw data",
        "perf script -i FILE prints what is read",
    ),
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
    (
        Magic(b"\xff\xfe"),
        "text in UTF-16",
        "iconv -f UTF-16 -t UTF-8 FILE converts it",
    ),
    (
        Magic(b"\xfe\xff"),
        "text in UTF-16",
        "iconv -f UTF-16 -t UTF-8 FILE converts it",
    ),
    // gperftools': 64 or 32 bits wide, in either order: https://gperftools.github.io/gperftools/cpuprofile-fileformat.html
    (
        Magic(b"\0\0\0\0\0\0\0\0\x03\0\0\0"),
        "an old CPU profile of gperftools",
        TO_PPROF,
    ),
    (
        Magic(b"\0\0\0\0\x03\0\0\0"),
        "an old CPU profile of gperftools",
        TO_PPROF,
    ),
    (
        Magic(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03"),
        "an old CPU profile of gperftools",
        TO_PPROF,
    ),
    (
        Magic(b"\0\0\0\0\0\0\0\x03\0\0\0\0"),
        "an old CPU profile of gperftools",
        TO_PPROF,
    ),
    // pprof's old text.
    (Starts("heap profile:"), "an old heap profile", TO_PPROF),
    (Head(" profile: total "), "Go's text", TO_PPROF),
    (Head(" 1 ---"), "an old profile in pprof's text", TO_PPROF),
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
        Starts("<?xml"),
        "XML",
        "inferno-collapse-xctrace folds that of xctrace; of a picture give the profile",
    ),
    (
        Starts("<svg"),
        "a picture",
        "give the profile that it was drawn from",
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
        Starts("v8-version,"),
        "V8's log",
        "node --prof-process FILE prints it",
    ),
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
    (Dtrace, "DTrace's stacks", FOLDS_DTRACE),
    (
        PerfFrames,
        "perf script text without the samples' own lines",
        "perf script -F comm,pid,tid,time,event,ip,sym,dso prints them",
    ),
];
