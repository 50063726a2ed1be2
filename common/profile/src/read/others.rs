//! Other tools' formats that are not read: known by their beginnings, so that a refusal names them and says what helps.

use memchr::memmem;

/// A format, by the shape of its beginning.
struct Format {
    shape: Shape,
    name: &'static str,
    /// The way to bring its content here, or to see it.
    remedy: &'static str,
}

enum Shape {
    /// First bytes.
    Magic(&'static [u8]),
    /// First text, behind white space and a byte order mark.
    Starts(&'static str),
    /// Text in the first line.
    Head(&'static str),
    /// Lines that begin so, behind white space, each somewhere.
    Lines(&'static [&'static str]),
    /// JSON whose beginning has all of these keys.
    Keys(&'static [&'static str]),
    /// DTrace's stacks: a frame a line, and below them a line with their number.
    Dtrace,
}

const TO_PPROF: &str = "go tool pprof -proto -output OUT.pb.gz FILE makes one of it that is";
const PERFETTO: &str = "https://ui.perfetto.dev shows it";
const SPEEDSCOPE: &str = "https://www.speedscope.app shows it";
const OWN: &str = "take the .json or .pb.gz of the same run";
const FOLDS_DTRACE: &str = "inferno-collapse-dtrace or stackcollapse.pl folds it";

const FORMATS: &[Format] = &[
    // Binary ones.
    binary(
        b"PERFILE2",
        "perf's raw data",
        "perf script -i FILE prints what is read",
    ),
    binary(
        b"FLR\0",
        "a recording of Java's Flight Recorder",
        "async-profiler's jfrconv folds it",
    ),
    binary(b"PK\x03\x04", "a zip archive", "unpack it"),
    binary(b"\x7fELF", "a program", "give a profile of it"),
    binary(
        b"gmon\x01\0\0\0",
        "gprof's data",
        "gprof PROGRAM FILE prints it",
    ),
    binary(
        b"\xff\xfe",
        "text in UTF-16",
        "iconv -f UTF-16 -t UTF-8 FILE converts it",
    ),
    binary(
        b"\xfe\xff",
        "text in UTF-16",
        "iconv -f UTF-16 -t UTF-8 FILE converts it",
    ),
    // gperftools': 64 or 32 bits wide, in either order: https://gperftools.github.io/gperftools/cpuprofile-fileformat.html
    binary(
        b"\0\0\0\0\0\0\0\0\x03\0\0\0",
        "an old CPU profile of gperftools",
        TO_PPROF,
    ),
    binary(
        b"\0\0\0\0\x03\0\0\0",
        "an old CPU profile of gperftools",
        TO_PPROF,
    ),
    binary(
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03",
        "an old CPU profile of gperftools",
        TO_PPROF,
    ),
    binary(
        b"\0\0\0\0\0\0\0\x03\0\0\0\0",
        "an old CPU profile of gperftools",
        TO_PPROF,
    ),
    // pprof's old text.
    starts("heap profile:", "an old heap profile", TO_PPROF),
    starts("goroutine profile:", "Go's text", TO_PPROF),
    starts("threadcreate profile:", "Go's text", TO_PPROF),
    Format {
        shape: Shape::Head(" 1 ---"),
        name: "an old profile in pprof's text",
        remedy: TO_PPROF,
    },
    // JSON.
    keys(&["shared", "frames"], "speedscope's JSON", OWN),
    keys(&["$schema", "profiles"], "speedscope's JSON", OWN),
    keys(&["traceEvents"], "a trace of events", PERFETTO),
    keys(&["ph", "ts"], "a trace of events", PERFETTO),
    keys(&["nodes", "callFrame"], "a CPU profile of V8", SPEEDSCOPE),
    keys(&["head", "callFrame"], "a heap profile of V8", SPEEDSCOPE),
    keys(&["head", "functionName"], "a CPU profile of V8", SPEEDSCOPE),
    keys(&["cost_centres"], "a profile of GHC", SPEEDSCOPE),
    keys(
        &["missed_samples"],
        "a profile of Ruby's stackprof",
        "stackprof --stackcollapse folds it",
    ),
    keys(&["sampleStackTraces"], "a recording of Safari", SPEEDSCOPE),
    keys(
        &["recording", "displayName"],
        "a recording of Safari",
        SPEEDSCOPE,
    ),
    keys(
        &["meta", "interval"],
        "a profile of Firefox",
        "https://profiler.firefox.com shows it",
    ),
    keys(
        &["markers", "allocations"],
        "a recording of Firefox",
        SPEEDSCOPE,
    ),
    keys(&["mappings", "sources"], "a source map", "give a profile"),
    // Text and tables.
    starts(
        "<?xml",
        "XML",
        "inferno-collapse-xctrace folds that of xctrace; of a picture give the profile",
    ),
    starts(
        "<svg",
        "a picture",
        "give the profile that it was drawn from",
    ),
    starts("<!DOCTYPE html", "a page", "give the profile that it shows"),
    starts(
        "Analysis of sampling",
        "the text of macOS's sample",
        "inferno-collapse-sample folds it",
    ),
    starts(
        "Function Stack,",
        "a table of VTune",
        "inferno-collapse-vtune folds it",
    ),
    starts(
        "Level,Function Name,",
        "a table of Visual Studio",
        "inferno-collapse-vsprof folds it",
    ),
    starts(
        "Showing nodes",
        "pprof's text",
        "give the profile that it was printed from",
    ),
    starts("digraph ", "a graph", "give the profile that it shows"),
    starts("@ ", "the text of pmcstat", SPEEDSCOPE),
    starts(
        "v8-version,",
        "V8's log",
        "node --prof-process FILE prints it",
    ),
    Format {
        shape: Shape::Head("Time and Allocation Profiling Report"),
        name: "a report of GHC",
        remedy: "inferno-collapse-ghcprof folds it",
    },
    Format {
        shape: Shape::Head("\tSymbol Name"),
        name: "a table of Instruments",
        remedy: SPEEDSCOPE,
    },
    Format {
        shape: Shape::Lines(&["events:", "fn="]),
        name: "callgrind's data",
        remedy: "callgrind_annotate or KCachegrind shows it",
    },
    Format {
        shape: Shape::Lines(&["@[", "]:"]),
        name: "a map of bpftrace's",
        remedy: "stackcollapse-bpftrace.pl folds it",
    },
    Format {
        shape: Shape::Dtrace,
        name: "DTrace's stacks",
        remedy: FOLDS_DTRACE,
    },
];

const fn binary(magic: &'static [u8], name: &'static str, remedy: &'static str) -> Format {
    let shape = Shape::Magic(magic);
    Format {
        shape,
        name,
        remedy,
    }
}

const fn starts(text: &'static str, name: &'static str, remedy: &'static str) -> Format {
    let shape = Shape::Starts(text);
    Format {
        shape,
        name,
        remedy,
    }
}

const fn keys(all: &'static [&'static str], name: &'static str, remedy: &'static str) -> Format {
    let shape = Shape::Keys(all);
    Format {
        shape,
        name,
        remedy,
    }
}

impl Shape {
    fn is_of(&self, start: &[u8]) -> bool {
        let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        let text = text.trim_ascii_start();
        // Numbers of a binary file may look like text.
        if !matches!(self, Self::Magic(_)) && start.contains(&0) {
            return false;
        }
        match self {
            Self::Magic(magic) => start.starts_with(magic),
            Self::Starts(first) => text
                .get(..first.len())
                .is_some_and(|own| own.eq_ignore_ascii_case(first.as_bytes())),
            Self::Head(part) => {
                let line = lines(text).next().unwrap_or_default();
                memmem::find(line, part.as_bytes()).is_some()
            }
            Self::Lines(all) => all.iter().all(|first| {
                lines(text).any(|line| line.trim_ascii_start().starts_with(first.as_bytes()))
            }),
            Self::Keys(all) => {
                let is_json = text.starts_with(b"{") || text.starts_with(b"[");
                let has = |key: &&str| memmem::find(text, format!("\"{key}\"").as_bytes());
                is_json && all.iter().all(|key| has(key).is_some())
            }
            Self::Dtrace => is_dtrace(text),
        }
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn is_dtrace(text: &[u8]) -> bool {
    let mut frames = 0;
    if text.starts_with(b"CPU")
        && lines(text)
            .next()
            .is_some_and(|line| line.trim_ascii_end().ends_with(b"FUNCTION:NAME"))
    {
        return true;
    }
    for line in lines(text) {
        let line = line.trim_ascii();
        if line.contains(&b';') {
            return false;
        }
        if !line.is_empty() && line.iter().all(u8::is_ascii_digit) {
            return frames > 0;
        }
        frames += usize::from(line.contains(&b'`'));
    }
    false
}

/// Why a file that begins so is refused; `None`: it is of no format that is known here.
pub(super) fn refusal(start: &[u8]) -> Option<String> {
    let format = FORMATS.iter().find(|format| format.shape.is_of(start))?;
    Some(format!(
        "is {}, which is not read: {}",
        format.name, format.remedy
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beginnings in the shapes of each format's own files.
    const STARTS: &[(&[u8], &str)] = &[
        (b"{\"typeId\":\"CPU\",\"head\":{\"functionName\":\"(root)\"", "CPU profile of V8"),
        (b"Showing nodes accounting for 93.75MB, 95% of 98MB total\n", "pprof's text"),
        (b"digraph \"a\" {\nnode [style=filled]\n", "a graph"),
        (b"@ inst_retired.any [35705 samples]\n\n20.86%  [7447]  main\n", "pmcstat"),
        (b"{\"$schema\":\"a\",\"profiles\":[]", "speedscope"),
        (b"{\"version\":\"0.0.1\",\"shared\":{\"frames\":[", "speedscope"),
        (b"PERFILE2h\0\0\0", "perf's raw data"),
        (b"FLR\0\0\x02\0\x01", "Flight Recorder"),
        (b"PK\x03\x04\x14\0", "zip"),
        (b"\x7fELF\x02\x01\x01", "a program"),
        (b"gmon\x01\0\0\0", "gprof"),
        (b"\xff\xfea\0;\0b\0 \x001\0", "UTF-16"),
        (b"\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0P'\0\0", "gperftools"),
        (b"\0\0\0\0\x03\0\0\0\x01\0\0\0P'\0\0", "gperftools"),
        (b"heap profile: 13: 15 [47: 25] @ heap/1048576\n1: 5 [3: 1] @ 0x4", "heap"),
        (b"goroutine profile: total 7\n1 @ 0x44cb3 0x45045\n", "Go's text"),
        (b"--- contentionz 1 ---\ncycles/second = 3201000000\n", "pprof's text"),
        (b"{\"traceEvents\": [{\"name\": \"a\"}]}", "trace of events"),
        (b"[\n{\"name\":\"a\",\"ph\":\"B\",\"ts\":1},", "trace of events"),
        (b"{\"nodes\":[{\"id\":1,\"callFrame\":{}}]}", "CPU profile of V8"),
        (b"{\"head\":{\"callFrame\":{}}}", "heap profile of V8"),
        (b"{\n\"program\": \"a\",\n\"cost_centres\": [", "GHC"),
        (b"{\"version\":1.2,\"mode\":\"wall\",\"missed_samples\":0,\"frames\":{}}", "stackprof"),
        (b"{\"version\":1,\"recording\":{\"displayName\":\"x\"", "Safari"),
        (b"{\"meta\":{\"interval\":1,\"version\":29},\"libs\":[]", "profile of Firefox"),
        (b"{\"label\":\"a\",\"markers\":[],\"frames\":[],\"allocations\":{}", "recording of Firefox"),
        (b"<?xml version=\"1.0\"?>\n<trace-query-result>\n", "XML"),
        (b"<svg xmlns=\"http://www.w3.org/2000/svg\">", "picture"),
        (b"<!DOCTYPE html>\n<html>", "page"),
        (b"Analysis of sampling rg (pid 6) every 1 millisecond\n", "macOS"),
        (b"Function Stack,CPU Time:Self,Module\nTotal,0.0,[Unknown]\n", "VTune"),
        (b"\xef\xbb\xbfLevel,Function Name,Number of Calls,\r\n", "Visual Studio"),
        (b"v8-version,6,0,287,53,0\n", "V8's log"),
        (b"\tSun Aug  6 Time and Allocation Profiling Report  (Final)\n", "GHC"),
        (b"Weight\tSelf Weight\t\tSymbol Name\n96 Gc\t-\t\tmain\n", "Instruments"),
        (b"version: 1\ncreator: callgrind-3.1\nevents: Ir\n\nfl=(1)\nfn=(1) main\n1 2\n", "callgrind"),
        (b"Attaching 1 probe...\n\n@[\n    schedule+46\n    do_nanosleep+113\n]: 12\n", "bpftrace"),
        (b"CPU     ID                    FUNCTION:NAME\n  8  35077  :tick-60s\n", "DTrace"),
        (b"\n\n              genunix`syscall_mstate+0x5e\n              unix`0xfb\n                5\n", "DTrace"),
        (b"{\"version\":3,\"sources\":[],\"mappings\":\"AAAA\"}", "source map"),
    ];

    #[test]
    fn formats_are_refused_by_name_with_a_remedy() {
        for (start, name) in STARTS {
            let said = refusal(start).expect(name);
            assert!(said.contains(name), "{name}: {said}");
        }
    }

    #[test]
    fn profiles_are_not_refused() {
        let own: [&[u8]; 9] = [
            b"a;b`c;d 5\n10\n",
            b"# tool: offcputime\nredis;main;read 12\n",
            b"{\"tool\":\"profile\",\"values\":[],\"stacks\":[]}",
            b"swapper     0 [000] 1.5: 1 cpu-clock: \n\tffffffff a ([kernel])\n\n",
            b"main 5",
            b"gmond;main;read 5",
            // Locations of a pprof profile, as DTrace's frames and their number.
            b"\x0a\x04\x08\x60\x00\x0a\x32\x0a",
            b"--- a/file\n+++ b/file\n",
            b"",
        ];
        for start in own {
            assert_eq!(refusal(start), None, "{}", String::from_utf8_lossy(start));
        }
    }
}
