//! Call frame information to a table: every address gets one description at most, the first.

use gimli::{DebugFrame, EhFrame, LittleEndian};

use crate::architecture::{Architecture, Format};
use crate::counts::Counts;
use crate::entries::{Context, Entry, Parsed, Section};
use crate::go::Go;
use crate::header::Kind;
use crate::machine::{needs_bx, plt_rules, vendor};
use crate::plt::Plt;
use crate::rows::Rows;
use crate::rule::{Cfa, Rule};
use crate::sections::CfiSection;
use crate::table::Table;
use crate::text::Text;
use elf::Error;

/// Smaller gaps between functions are padding: rows for them would be a fifth of all.
const MIN_GAP: u64 = 16;

/// Makes the table of all sections together.
pub(crate) fn table(
    architecture: Architecture,
    sections: &[CfiSection],
    text: &Text,
) -> Result<(Table, Counts), Error> {
    let made = make(
        Format {
            architecture,
            with_bx: false,
        },
        sections,
        text,
    )?;
    // Rules that say where rbx is are many more, and hardly any file needs them.
    if made
        .0
        .rules
        .iter()
        .any(|rule| needs_bx(architecture, *rule))
    {
        return make(
            Format {
                architecture,
                with_bx: true,
            },
            sections,
            text,
        );
    }
    Ok(made)
}

fn make(format: Format, sections: &[CfiSection], text: &Text) -> Result<(Table, Counts), Error> {
    let mut counts = Counts::default();
    let parsed = sections.iter().map(|section| parse(section, format));
    let mut parsed: Vec<_> = parsed.collect();
    let mut entries = Vec::new();
    for kind in [
        Kind::EhFrame,
        Kind::DebugFrame,
        Kind::Go,
        Kind::Plt,
        Kind::Leaf,
    ] {
        let mut more = Vec::new();
        for (index, section) in parsed.iter_mut().enumerate() {
            if sections[index].kind == kind {
                section.collect(index, text, &mut more, &mut counts)?;
            }
        }
        let hidden = merge(&mut entries, more);
        if kind != Kind::Plt {
            counts.hidden_fdes += hidden;
        }
    }
    let mut context = Context::new_in();
    let mut rows = Rows::default();
    for (index, entry) in entries.iter().enumerate() {
        parsed[entry.section].rows(entry, &mut context, &mut rows, &mut counts)?;
        let next = entries.get(index + 1).map(|next| next.start - entry.end);
        if next.is_none_or(|gap| gap >= MIN_GAP) {
            rows.push(entry.end, Rule::UNCOVERED)?;
        }
    }
    Ok((rows.finish()?, counts))
}

fn parse(section: &CfiSection, format: Format) -> Box<dyn Section + '_> {
    let (kind, bytes, address) = (section.kind, &section.bytes[..], section.address);
    match kind {
        Kind::EhFrame => {
            let mut frames = EhFrame::new(bytes, LittleEndian);
            frames.set_address_size(8);
            frames.set_vendor(vendor(format.architecture));
            Box::new(Parsed::new(frames, kind, bytes, address, format))
        }
        Kind::DebugFrame => {
            let mut frames = DebugFrame::new(bytes, LittleEndian);
            frames.set_address_size(8);
            frames.set_vendor(vendor(format.architecture));
            Box::new(Parsed::new(frames, kind, bytes, address, format))
        }
        Kind::Go => match Go::new(bytes, address, format.architecture) {
            Some(go) => Box::new(go),
            None => Box::new(Plt::default()),
        },
        Kind::Plt => Box::new(Plt {
            address,
            length: bytes.len() as u64,
            rules: plt_rules(format.architecture, bytes),
        }),
        Kind::Leaf => Box::new(Plt {
            address,
            length: bytes.len() as u64,
            rules: vec![(
                0,
                Rule {
                    cfa: Cfa::Sp,
                    ..Rule::default()
                },
            )],
        }),
    }
}

/// Adds those of `more` that describe what nothing describes yet: of those that overlap in `more`, the one that starts
/// first, then the first in the file; none that overlaps an older entry. Leaves `entries` sorted and disjoint. Returns
/// how many were not added.
fn merge(entries: &mut Vec<Entry>, mut more: Vec<Entry>) -> u64 {
    // Stable: the order of the file decides between equal starts.
    more.sort_by_key(|entry| entry.start);
    let (mut free_from, mut hidden) = (0, 0);
    let old = std::mem::take(entries);
    more.retain_mut(|entry| {
        entry.start = entry.start.max(free_from);
        let before = old.partition_point(|old| old.end <= entry.start);
        let taken = old.get(before).is_some_and(|old| old.start < entry.end);
        let keep = entry.start < entry.end && !taken;
        if keep {
            free_from = entry.end;
        } else {
            hidden += 1;
        }
        keep
    });
    *entries = old;
    if !more.is_empty() {
        entries.append(&mut more);
        entries.sort_by_key(|entry| entry.start);
    }
    hidden
}
