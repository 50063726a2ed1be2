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

const TO_PPROF: &str = "go tool pprof -proto -output OUT.pb.gz FILE makes one of it that is";
const PERFETTO: &str = "https://ui.perfetto.dev shows it";
const SPEEDSCOPE: &str = "https://www.speedscope.app shows it";
const PRINTED: &str = "give the profile that it was printed from";
const OF_IT: &str = "give a profile of it";
const OWN: &str = "take the .json or .pb.gz of the same run; https://www.speedscope.app shows it";
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
    binary(b"\x7fELF", "a program", OF_IT),
    binary(b"\xcf\xfa\xed\xfe", "a program", OF_IT),
    binary(b"MZ\x90\0", "a program", OF_IT),
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
    head(" profile: total ", "Go's text", TO_PPROF),
    head(" 1 ---", "an old profile in pprof's text", TO_PPROF),
    // JSON.
    keys(&["shared", "frames"], "speedscope's JSON", OWN),
    keys(&["$schema", "profiles"], "speedscope's JSON", OWN),
    keys(&["profiles", "startValue"], "speedscope's JSON", OWN),
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
    keys(&["code", "SHARED_LIB"], "V8's log", SPEEDSCOPE),
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
    starts("Showing nodes", "pprof's text", PRINTED),
    starts("Active filters:", "pprof's text", PRINTED),
    starts("PeriodType:", "pprof's text", PRINTED),
    lines(&["Type: ", "Showing nodes"], "pprof's text", PRINTED),
    lines(&["-----------+----"], "pprof's text", PRINTED),
    lines(&["ROUTINE ======"], "pprof's text", PRINTED),
    starts("digraph ", "a graph", "give the profile that it shows"),
    starts("@ ", "the text of pmcstat", SPEEDSCOPE),
    head(" log opened (PC)", "a log of Papyrus", SPEEDSCOPE),
    head(
        "->rgb(",
        "a palette of flamegraph.pl",
        "give the profile that it colours",
    ),
    starts(
        "v8-version,",
        "V8's log",
        "node --prof-process FILE prints it",
    ),
    head(
        "Time and Allocation Profiling Report",
        "a report of GHC",
        "inferno-collapse-ghcprof folds it",
    ),
    head("\tSymbol Name", "a table of Instruments", SPEEDSCOPE),
    lines(
        &["events:", "fn="],
        "callgrind's data",
        "callgrind_annotate or KCachegrind shows it",
    ),
    lines(
        &["@[", "]:"],
        "a map of bpftrace's",
        "stackcollapse-bpftrace.pl folds it",
    ),
    Format {
        shape: Shape::Dtrace,
        name: "DTrace's stacks",
        remedy: FOLDS_DTRACE,
    },
    format(
        Shape::PerfFrames,
        "perf script text without the samples' own lines",
        "perf script -F comm,pid,tid,time,event,ip,sym,dso prints them",
    ),
];

type Text = &'static str;

const fn format(shape: Shape, name: Text, remedy: Text) -> Format {
    Format {
        shape,
        name,
        remedy,
    }
}

const fn binary(magic: &'static [u8], name: Text, remedy: Text) -> Format {
    format(Shape::Magic(magic), name, remedy)
}

const fn starts(text: &'static str, name: Text, remedy: Text) -> Format {
    format(Shape::Starts(text), name, remedy)
}

const fn head(part: &'static str, name: Text, remedy: Text) -> Format {
    format(Shape::Head(part), name, remedy)
}

const fn lines(all: &'static [&'static str], name: Text, remedy: Text) -> Format {
    format(Shape::Lines(all), name, remedy)
}

const fn keys(all: &'static [&'static str], name: Text, remedy: Text) -> Format {
    format(Shape::Keys(all), name, remedy)
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
                let line =
                    split(text).find(|line| !line.trim_ascii().is_empty() && line[0] != b'#');
                line.is_some_and(|line| {
                    !line.contains(&b';') && memmem::find(line, part.as_bytes()).is_some()
                })
            }
            Self::Lines(all) => all.iter().all(|first| {
                split(text).any(|line| line.trim_ascii_start().starts_with(first.as_bytes()))
            }),
            Self::Keys(all) => {
                let is_json = text.starts_with(b"{") || text.starts_with(b"[");
                let has = |key: &&str| memmem::find(text, format!("\"{key}\"").as_bytes());
                is_json && all.iter().all(|key| has(key).is_some())
            }
            Self::Dtrace => is_dtrace(text),
            Self::PerfFrames => are_perf_frames(start),
        }
    }
}

fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn is_dtrace(text: &[u8]) -> bool {
    let mut frames = 0;
    if text.starts_with(b"CPU")
        && split(text)
            .next()
            .is_some_and(|line| line.trim_ascii_end().ends_with(b"FUNCTION:NAME"))
    {
        return true;
    }
    for line in split(text) {
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

/// Looks at the first lines; the last one may be cut.
fn are_perf_frames(start: &[u8]) -> bool {
    let lines = split(start).filter(|line| !line.trim_ascii().is_empty());
    let is_frame = |line: &[u8]| {
        let mut words = line.trim_ascii().splitn(2, |byte| *byte == b' ');
        let address = words.next().unwrap_or_default();
        let is_address = address.len() >= 4 && address.iter().all(u8::is_ascii_hexdigit);
        line[0].is_ascii_whitespace() && is_address && words.next().is_some()
    };
    let mut lines = lines.take(3).peekable();
    lines.peek().is_some() && lines.all(is_frame)
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
