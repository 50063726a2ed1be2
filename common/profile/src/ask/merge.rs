//! Sums of profiles.

use crate::recording::{Header, Recording, Value};

/// Adds profiles up; never averages.
///
/// Profiles of time and sampled profiles of a clock make one of time, and so do those of clocks that differ: each sample stands for
/// its period.
///
/// # Errors
///
/// When their values are of different kinds; the text says which.
pub fn merge(recordings: Vec<Recording>) -> Result<Recording, String> {
    let has_time = recordings.iter().any(|recording| recording.unit() == "ns");
    let has_samples = recordings.iter().any(|recording| recording.unit() != "ns");
    let mixes = has_time && has_samples || clocks_differ(&recordings);
    let mut parts = Vec::new();
    for recording in recordings {
        parts.push(if mixes {
            as_time(recording)?
        } else {
            recording
        });
    }
    let mut parts = parts.into_iter();
    let Some(mut sum) = parts.next() else {
        return Err("nothing to merge".into());
    };
    for part in parts {
        if sum.header.values != part.header.values {
            let [a, b] = [&sum, &part].map(describe);
            return Err(format!(
                "{a} and {b} cannot be added; choose one with --value, or say --unit"
            ));
        }
        add_header(&mut sum.header, &part.header);
        sum.absorb(&part);
    }
    Ok(sum)
}

/// Whether all are samples of clocks, and not all of one rate.
fn clocks_differ(recordings: &[Recording]) -> bool {
    let are_clocks = recordings
        .iter()
        .all(|recording| recording.unit() == "count" && recording.header.period_ns > 0);
    let differ = |pair: &[Recording]| pair[0].header.period_ns != pair[1].header.period_ns;
    are_clocks && recordings.windows(2).any(differ)
}

fn describe(recording: &Recording) -> String {
    let values = recording
        .header
        .values
        .iter()
        .map(|value| match &*value.unit {
            "" => format!("{} (no unit)", value.name),
            unit => format!("{} ({unit})", value.name),
        });
    values.collect::<Vec<_>>().join(" + ")
}

/// One value of time: off-CPU times added up, samples multiplied by their period.
fn as_time(recording: Recording) -> Result<Recording, String> {
    let value = Value::new("time", "ns");
    let header = Header {
        values: vec![value],
        ..recording.header.clone()
    };
    let factor = match recording.unit() {
        "ns" => 1,
        "count" if recording.header.period_ns > 0 => recording.header.period_ns,
        _ => {
            return Err(format!(
                "{} does not say how much time a sample stands for, so it cannot be added to times",
                describe(&recording)
            ));
        }
    };
    Ok(recording.weighed(header, factor))
}

fn add_header(sum: &mut Header, part: &Header) {
    // Runs of a tool beside each other do not add up to a longer one, those after each other do; the files do not say which.
    let are_two_tools = sum.tool != part.tool && !sum.tool.is_empty();
    let are_known = sum.duration_ns > 0 && part.duration_ns > 0;
    sum.duration_ns = match are_two_tools && are_known {
        true => sum.duration_ns.max(part.duration_ns),
        false => 0,
    };
    sum.has_counts &= part.has_counts;
    sum.are_apart |= part.are_apart;
    sum.shows_threads |= part.shows_threads;
    if sum.tool != part.tool {
        sum.tool.clear();
    }
    if sum.event != part.event {
        sum.event.clear();
    }
    if sum.period_ns != part.period_ns {
        sum.period_ns = 0;
    }
    sum.comments.extend(part.comments.iter().cloned());
    for (module, id) in &part.build_ids {
        sum.build_ids
            .entry(module.clone())
            .and_modify(|known| {
                if known != id {
                    known.clear();
                }
            })
            .or_insert_with(|| id.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_tells_what_all_its_parts_tell_alike() {
        let part = |tool: &str, event: &str, period_ns| {
            let mut part = Recording::default();
            part.header.tool = tool.into();
            part.header.event = event.into();
            part.header.period_ns = period_ns;
            part.header.build_ids = [("app".to_owned(), event.to_owned())].into();
            part
        };
        let sum = |one, other| {
            let header = merge(vec![one, other]).expect("a sum").header;
            let id = header.build_ids["app"].clone();
            (header.tool, header.event, header.period_ns, id)
        };
        let [one, other] = [("profile", "cycles", 7), ("perf", "page-faults", 8)];
        let of = |(tool, event, period_ns)| part(tool, event, period_ns);
        let alike = ("profile".into(), "cycles".into(), 7, "cycles".into());
        assert_eq!(sum(of(one), of(one)), alike);
        assert_eq!(sum(of(one), of(other)), Default::default());
    }
}
