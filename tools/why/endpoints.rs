//! The files and connections that a line's waits were for.

use profile::escape::terminal;
use profile::text::cut_start;
use serde_json::Value;

use crate::offcputime::Endpoint;
use crate::why::line::Line;

/// Share of a line from which one is named, and so many of them.
const LEAST: f64 = 0.05;
const NAMED: usize = 2;
/// Columns of its name.
const NAME: usize = 40;

/// A name for a terminal: of a path the end tells most.
fn name(endpoint: &Endpoint) -> String {
    cut_start(&terminal(&endpoint.to_string()), NAME)
}

fn share(line: &Line, ns: u64) -> f64 {
    ns as f64 / line.time_ns().max(1) as f64
}

/// The one with most of a line, and its share, from 0 to 1.
fn first(line: &Line) -> Option<(&Endpoint, f64)> {
    let (endpoint, ns) = line.endpoints.first()?;
    Some((endpoint, share(line, *ns))).filter(|(_, share)| *share >= LEAST)
}

/// `10.0.0.7:5432 97%, 10.0.0.8:6379 2%`: a row for each.
pub(crate) fn remarks(line: &Line) -> Vec<String> {
    let shares = line.endpoints.iter();
    let shares = shares.map(|(endpoint, ns)| (endpoint, share(line, *ns)));
    let large = shares.filter(|(_, share)| *share >= LEAST).take(NAMED);
    large
        .map(|(endpoint, share)| format!("  {:.0}% for {}", 100.0 * share, name(endpoint)))
        .collect()
}

/// The connection that most of a line was for, and its share, from 0 to 1.
pub(crate) fn connection(line: &Line) -> Option<(String, f64)> {
    let (endpoint, share) = first(line)?;
    endpoint.is_connection().then(|| (name(endpoint), share))
}

/// `(97% of it for 10.0.0.7:5432)`
pub(crate) fn sentence(line: &Line) -> Option<String> {
    let (endpoint, share) = first(line)?;
    Some(format!(
        "({:.0}% of it for {})",
        100.0 * share,
        name(endpoint)
    ))
}

/// `[{"peer" | "clients_of" | "file", "protocol", "ns"}, ...]`, the most first.
pub(crate) fn to_json(line: &Line) -> Value {
    let endpoints = line.endpoints.iter().map(|(endpoint, ns)| {
        let mut told = endpoint.to_json();
        told["ns"] = (*ns).into();
        told
    });
    endpoints.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(endpoints: &[(&str, u64)]) -> Line {
        let file = |(name, ns): &(&str, u64)| (Endpoint::File((*name).to_owned()), *ns);
        Line {
            ns: 100,
            endpoints: endpoints.iter().map(file).collect(),
            ..Line::default()
        }
    }

    #[test]
    fn the_largest_are_named_by_their_share_of_the_line() {
        let one = line(&[("/a", 60), ("/b\u{1b}", 20), ("/c", 10), ("/d", 1)]);
        assert_eq!(remarks(&one), ["  60% for /a", "  20% for /b\\x1b"]);
        assert_eq!(sentence(&one).as_deref(), Some("(60% of it for /a)"));
        assert_eq!(connection(&one), None);
        let small = line(&[("/a", 4)]);
        assert!(remarks(&small).is_empty() && sentence(&small).is_none());
        assert_eq!(to_json(&small).to_string(), r#"[{"file":"/a","ns":4}]"#);
    }

    #[test]
    fn a_long_path_keeps_its_end() {
        let path = format!("/{}/wal", "directory/".repeat(9));
        let [remark] = &remarks(&line(&[(&path, 100)]))[..] else {
            panic!("one remark");
        };
        assert!(
            remark.starts_with("  100% for …") && remark.ends_with("/wal"),
            "{remark}"
        );
    }
}
