//! Formats of other tools: the beginnings that they are known by, as `formats.txt` lists them.

use std::sync::LazyLock;

use serde_json::Deserializer;

/// A beginning that a format is known by.
pub(super) enum Shape {
    /// First bytes.
    Magic(Vec<u8>),
    /// First text, behind white space and a byte order mark.
    Starts(String),
    /// Text in the first line that is no comment, and no path of functions.
    Head(String),
    /// Lines that begin so, behind white space, each somewhere.
    Lines(Vec<String>),
    /// JSON whose beginning has all of these keys.
    Keys(Vec<String>),
    /// A frame a line, which begins so and has this in it, and below them a line with their number.
    Counted(String, String),
    /// A first line of a function and, behind a tab, an attribute of one of these names.
    Attributes(Vec<String>),
    /// A first line of two numbers and a frame that ends in its place.
    Weighed,
    /// Frames of `perf script` alone: an address and a name a line.
    PerfFrames,
    /// Its frames behind a line that names no thread by its ID.
    PerfNameless,
}

/// Beginnings, each with the format's name and its remedy, in the order in which they are tried.
pub(super) static FORMATS: LazyLock<Vec<(Shape, &str, &str)>> =
    LazyLock::new(|| parse(include_str!("formats.txt")).expect("a test reads the list"));

/// `None`: a line is no format and no shape.
fn parse(list: &str) -> Option<Vec<(Shape, &str, &str)>> {
    let mut formats = Vec::new();
    let mut format = None;
    let lines = list.lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(shape) = line.strip_prefix("    ") {
            let (name, remedy) = format?;
            formats.push((Shape::parse(shape)?, name, remedy));
        } else {
            format = Some(line.split_once(": ")?);
        }
    }
    Some(formats)
}

impl Shape {
    /// `lines "Type: " "Showing nodes"`
    fn parse(line: &str) -> Option<Self> {
        let (word, texts) = line.split_once(' ').unwrap_or((line, ""));
        let texts = Deserializer::from_str(texts).into_iter();
        let texts: Vec<String> = texts.collect::<Result<_, _>>().ok()?;
        Some(match (word, &texts[..]) {
            ("magic", [bytes]) => {
                let bytes = bytes.chars().map(u8::try_from);
                Self::Magic(bytes.collect::<Result<_, _>>().ok()?)
            }
            ("starts", [first]) => Self::Starts(first.clone()),
            ("head", [part]) => Self::Head(part.clone()),
            ("lines", [_, ..]) => Self::Lines(texts),
            ("keys", [_, ..]) => Self::Keys(texts),
            ("counted", [start, mark]) => Self::Counted(start.clone(), mark.clone()),
            ("attributes", [_, ..]) => Self::Attributes(texts),
            ("weighed", []) => Self::Weighed,
            ("perf-frames", []) => Self::PerfFrames,
            ("perf-nameless", []) => Self::PerfNameless,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_been_read_to_its_end() {
        assert!(matches!(
            FORMATS.last(),
            Some((
                Shape::PerfNameless,
                "perf script text without the threads' IDs",
                _
            ))
        ));
    }

    #[test]
    fn lines_that_are_neither_a_format_nor_a_shape_are_mistakes() {
        assert_eq!(
            parse("a: b\n    starts \"x\"\n").map(|list| list.len()),
            Some(1)
        );
        for list in [
            "    weighed",
            "a",
            "a: b\n    start \"x\"",
            "a: b\n    head",
            "a: b\n    head \"x",
        ] {
            assert!(parse(list).is_none(), "{list}");
        }
    }
}
