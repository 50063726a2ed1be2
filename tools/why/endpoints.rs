//! The files and connections that a line's waits were for.

use profile::escape::terminal;
use profile::text::cut_start;
use serde_json::Value;

use crate::offcputime::Endpoint;
use crate::why::line::Line;

/// Share of a line from which one is named, and so many of them.
const LEAST: f64 = 0.05;
const NAMED: usize = 2;
/// Columns of a path.
const PATH: usize = 40;

/// A name for a terminal: of a path the end tells most.
pub(crate) fn name(endpoint: &Endpoint) -> String {
    let (before, name) = endpoint.parts();
    let name = terminal(&name);
    match endpoint.is_path() {
        true => format!("{before}{}", cut_start(&name, PATH)),
        false => format!("{before}{name}"),
    }
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

/// `(97% of the wait for 10.0.0.7:5432)`
pub(crate) fn sentence(line: &Line) -> Option<String> {
    let (endpoint, share) = first(line)?;
    Some(format!(
        "({:.0}% of the wait for {})",
        100.0 * share,
        name(endpoint)
    ))
}

/// The first of them, if it has a part that is worth a word.
pub(crate) fn first_to_json(line: &Line) -> Option<Value> {
    first(line).map(|(endpoint, _)| endpoint.to_json())
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
    use crate::why::line::Culprit;
    use crate::why::sentences::sentences;
    use crate::why::tests;

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
        assert_eq!(sentence(&one).as_deref(), Some("(60% of the wait for /a)"));
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
        let is_cut = remark.starts_with("  100% for …") && remark.ends_with("/wal");
        assert!(is_cut, "{remark}");
        let clients = name(&Endpoint::Unix(path, true));
        let is_cut = clients.starts_with("clients of …") && clients.ends_with("/wal");
        assert!(is_cut, "{clients}");
    }

    /// The sentence on who causes a line that is for one peer, or to a part.
    fn cause(blames: &[(Culprit, u64)], of_peer_ms: u64) -> String {
        let peer = Endpoint::Peer(([10, 0, 0, 7], 80).into(), false);
        let mut line = tests::line("socket", 300, blames);
        line.endpoints = vec![(peer, of_peer_ms * tests::MS)];
        let sentences = sentences(&tests::account(vec![line]));
        sentences.last().expect("a cause").clone()
    }

    #[test]
    fn the_other_end_stands_for_an_interrupt_and_beside_all_else() {
        let interrupt = [(Culprit::Interrupt, 9), (tests::program("ksoftirqd", 3), 1)];
        let alone = "100% of that was for 10.0.0.7:80";
        assert_eq!(cause(&interrupt, 300), alone);
        assert_eq!(cause(&[], 300), alone);
        // Most of it is not known to be for it.
        let few = cause(&interrupt, 30);
        assert_eq!(
            few,
            "an interrupt ended 90% of that (10% of the wait for 10.0.0.7:80)"
        );
        let nobody = cause(&[(Culprit::Nobody, 9), (Culprit::Interrupt, 1)], 300);
        assert!(
            nobody.starts_with("90% of that nobody has ended yet"),
            "{nobody}"
        );
        assert!(
            nobody.ends_with("(100% of the wait for 10.0.0.7:80)"),
            "{nobody}"
        );
        let thread = cause(&[(tests::program("peer", 9), 1)], 300);
        assert!(
            thread.starts_with("peer 9 ended 100% of that in put"),
            "{thread}"
        );
        assert!(
            thread.ends_with("(100% of the wait for 10.0.0.7:80)"),
            "{thread}"
        );
    }
}
