//! Profiles into files of every format.

mod folded;
mod perf;
pub(crate) mod pprof;
mod speedscope;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value as Json};

use crate::draw::{self, Account, View};
use crate::json;
use crate::model::Profile;
use crate::recording::{Header, Recording};
pub use perf::Moment;

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// One stack a line.
    Folded,
    /// Flame graph.
    Svg,
    /// Page with flame graph and table, without network.
    Html,
    /// Ours.
    Json,
    /// For pprof, compressed.
    Pprof,
    /// For speedscope.app.
    Speedscope,
    /// As `perf script` prints.
    Perf,
}

impl Format {
    /// Endings of file names. Longer ones come first: `.speedscope.json` ends with `.json`.
    pub const ENDINGS: [(&str, Self); 8] = [
        (".speedscope.json", Self::Speedscope),
        (".perf.txt", Self::Perf),
        (".pb.gz", Self::Pprof),
        (".pprof", Self::Pprof),
        (".folded", Self::Folded),
        (".svg", Self::Svg),
        (".html", Self::Html),
        (".json", Self::Json),
    ];

    /// The format that a file's name asks for.
    pub fn of_name(name: &str) -> Option<Self> {
        let found = Self::ENDINGS
            .iter()
            .find(|(ending, _)| name.ends_with(ending));
        found.map(|(_, format)| *format)
    }

    /// How to read the file, in one line; for the end of a run.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Folded => "one stack a line; draw it with flame draw",
            Self::Svg | Self::Html => {
                "open it in a browser; wider is more, stacks grow upwards, left to right is not time"
            }
            Self::Json => "ask it with flame top, flame peek, flame diff",
            Self::Pprof => "go tool pprof reads it",
            Self::Speedscope => "drop it onto speedscope.app",
            Self::Perf => "for readers of perf script text; of profile also for flame heat",
        }
    }
}

/// What a tool knows beyond the profile.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// What the graph is about, e.g. `off-CPU time`; empty: made from tool and values.
    pub title: String,
    /// What made it take a sample, e.g. `page-faults`; empty where that is the tool's one subject.
    pub event: String,
    /// Account for people, for formats that have room for one.
    pub account: Account,
    /// Losses and cost, one line each.
    pub comments: Vec<String>,
    /// When the window began, ns since 1970; 0: unknown.
    pub time_ns: u64,
    /// Time that a sample stands for, ns; 0: it does not.
    pub period_ns: u64,
    /// Build ID (hexadecimal) by module.
    pub build_ids: BTreeMap<String, String>,
}

impl Meta {
    fn of(header: &Header) -> Self {
        Self {
            title: String::new(),
            account: Account::default(),
            event: header.event.clone(),
            comments: header.comments.clone(),
            time_ns: header.time_ns,
            period_ns: header.period_ns,
            build_ids: header.build_ids.clone(),
        }
    }

    fn put_into(&self, header: &mut Header) {
        header.event.clone_from(&self.event);
        header.comments.clone_from(&self.comments);
        header.build_ids.clone_from(&self.build_ids);
        (header.time_ns, header.period_ns) = (self.time_ns, self.period_ns);
    }

    /// Fields of our JSON beside the profile's own; what is not known has none.
    pub fn to_json(&self) -> Map<String, Json> {
        let build_ids = self.build_ids.iter().filter(|(_, id)| !id.is_empty());
        let build_ids: Map<String, Json> = build_ids
            .map(|(module, id)| (module.clone(), Json::from(&**id)))
            .collect();
        let fields = [
            ("event", Json::from(&*self.event), !self.event.is_empty()),
            ("time_ns", self.time_ns.into(), self.time_ns > 0),
            (
                "sample_period_ns",
                self.period_ns.into(),
                self.period_ns > 0,
            ),
            (
                "comments",
                self.comments.as_slice().into(),
                !self.comments.is_empty(),
            ),
            ("build_ids", build_ids.into(), !self.build_ids.is_empty()),
        ];
        let known = fields.into_iter().filter(|(_, _, is_known)| *is_known);
        known
            .map(|(key, value, _)| (key.to_owned(), value))
            .collect()
    }
}

/// Writes what a tool found.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    profile: &Profile,
    format: Format,
    meta: &Meta,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut recording = Recording::of_profile(profile);
    meta.put_into(&mut recording.header);
    let view = View {
        account: meta.account.clone(),
        ..View::titled(&meta.title)
    };
    write_as(&recording, format, &view, out)
}

/// Writes single samples with their times, as [`Format::Perf`].
///
/// # Errors
///
/// Those of `out`.
pub fn write_moments(
    profile: &Profile,
    moments: &[Moment],
    meta: &Meta,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut recording = Recording::of_profile(profile);
    meta.put_into(&mut recording.header);
    let samples = profile.samples.iter();
    let keys: Vec<_> = samples.map(|sample| recording.key_of(sample)).collect();
    perf::write_moments(&recording, &keys, moments, out)
}

/// Writes what files held; an empty title is made from tool and values.
///
/// # Errors
///
/// Those of `out`.
pub fn write_recording(
    recording: &Recording,
    format: Format,
    title: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    write_as(recording, format, &View::titled(title), out)
}

fn write_as(
    recording: &Recording,
    format: Format,
    view: &View,
    out: &mut impl Write,
) -> io::Result<()> {
    match format {
        Format::Folded => folded::write(recording, out),
        Format::Json => {
            let extra = Meta::of(&recording.header).to_json();
            json::write(&recording.to_profile(), &extra, out)
        }
        Format::Pprof => pprof::write(recording, out),
        Format::Speedscope => speedscope::write(recording, out),
        Format::Perf => perf::write(recording, out),
        Format::Svg => draw::svg(recording, view, out),
        Format::Html => draw::html(recording, view, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_a_profile_has_no_field() {
        assert_eq!(Meta::default().to_json(), Map::new());
        let known = Meta {
            period_ns: 1,
            time_ns: 1,
            ..Meta::default()
        };
        let keys: Vec<String> = known.to_json().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["sample_period_ns", "time_ns"]);
    }
}
