//! The last one to come to a barrier, in words.

use profile::escape::terminal;
use profile::text::comm;
use profile::units;

use crate::lockstat::row::Arrival;

/// Callers and holders named behind a lock.
pub(crate) const NAMED: usize = 3;

/// Threads that came last to a barrier, and how often.
pub(crate) fn came_last(last: &[Arrival]) -> Vec<String> {
    let rounds = last.iter().map(|one| one.times).sum();
    let named = |(at, one): (usize, &Arrival)| {
        let begin = if at == 0 { "last to come: " } else { "" };
        let who = format!("{} {}", comm(&one.task.comm), one.task.tid);
        let caller = one.caller.as_deref();
        let place = caller.map_or_else(String::new, |caller| format!(", in {}", terminal(caller)));
        let times = match at {
            0 => format!(
                "{} of {}",
                units::count(one.times),
                units::counted(rounds, "times")
            ),
            _ => units::counted(one.times, "times"),
        };
        format!("{begin}{who}, {times}{place}")
    };
    let mut named: Vec<String> = last.iter().take(NAMED).enumerate().map(named).collect();
    if last.len() > NAMED {
        named.push(format!("{} more", last.len() - NAMED));
    }
    named
}
