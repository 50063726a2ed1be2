//! The command that looks further: at who holds the lock, else at who waits for it, else where time is lost instead.

use std::collections::BTreeSet;

use session::chosen;
use session::next::{Step, in_remark};

use crate::lockstat::args::Args;
use crate::lockstat::headline::{is_little, like, worst};
use crate::lockstat::row::{Holder, HolderKind, LockRow};
use crate::lockstat::table::by_thread;

/// The command that looks further, and what it answers.
pub(crate) fn next(
    args: &Args,
    rows: &[LockRow],
    window_ns: u64,
    is_there: fn(u32) -> bool,
) -> String {
    let chosen = chosen::options(&args.targets, is_there);
    let all_ns = |worst: &LockRow| like(rows, worst).map(|row| row.total_ns).sum::<u64>();
    let is_trouble = |worst: &&LockRow| !is_little(all_ns(worst), window_ns);
    let Some(row) = worst(rows).filter(is_trouble) else {
        return match chosen {
            Some(chosen) => Step::Waits.line_for(&chosen, "where threads wait instead"),
            None => Step::Shortages.line(""),
        };
    };
    let held = by_thread(row.holders.iter());
    if let Some(step) = held.first().and_then(|holder| of_holder(holder, is_there)) {
        return step;
    }
    let waiters = row.waiters.iter().filter(|waiter| !waiter.in_interrupt);
    let waiters: BTreeSet<u32> = waiters.map(|waiter| waiter.task.tgid).collect();
    let mut there = waiters.iter().filter(|tgid| is_there(**tgid));
    // The choice is better than one of many processes.
    let target = match (there.next(), chosen) {
        (Some(_), Some(chosen)) if waiters.len() > 1 && !chosen.is_empty() => chosen,
        (Some(tgid), _) => format!("-p {tgid}"),
        (None, Some(chosen)) => chosen,
        // Nothing is left of what was chosen.
        (None, None) => return Step::Shortages.line(""),
    };
    // A program that is started anew holds nothing yet.
    if held.is_empty() && row.open > 0 && row.is_known_now() && !target.contains("-- ") {
        return Step::LocksNow.line(&target);
    }
    match args.stacks {
        0 => Step::LockStacks.line(&target),
        _ => Step::Wakers.line(&target),
    }
}

/// Looks at a holder according to what it was mostly doing while others waited.
fn of_holder(holder: &Holder, is_there: fn(u32) -> bool) -> Option<String> {
    let began = [holder.on_cpu, holder.runnable, holder.blocked];
    let [on_cpu, queued, off] = holder.meanwhile.states().unwrap_or(began);
    let most = on_cpu.max(queued).max(off);
    if holder.kind == HolderKind::Waker || most == 0 || !is_there(holder.task.tgid) {
        return None;
    }
    let target = format!("-p {}", holder.task.tgid);
    let comm = in_remark(&holder.task.comm, "the thread");
    Some(if most == on_cpu {
        Step::CpuTime.line_for(&target, &format!("what {comm}, which holds it, runs"))
    } else if most == off {
        Step::Waits.line_for(&target, &format!("where {comm}, which holds it, waits"))
    } else {
        let what = format!("behind whom {comm}, which holds it, waits for a CPU");
        Step::RunQueue.line_for(&target, &what)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::lockstat::row::Side;
    use crate::lockstat::row::tests::{row, waiter};
    use crate::made_up::task;

    #[test]
    fn a_look_at_this_instant_is_for_what_it_knows() {
        let of = |side, number, class| {
            let mut hung = row(500);
            (hung.identity.side, hung.identity.class) = (side, number);
            hung.class = class;
            hung.open = 1;
            hung.waiters = vec![waiter(task("app", 7, 8), 500)];
            next(&Args::parse_from(["lockstat"]), &[hung], 1_000, |_| true)
        };
        let now = "lockstat --now -p 7 ";
        for (side, number, class) in [
            (Side::Kernel, 3, "mutex"),
            (Side::User, 0, "mutex"),
            (Side::User, 0, "monitor"),
            (Side::User, 0, "join"),
            (Side::User, 128, "flock"),
            (Side::User, 0xfe, "lock"),
        ] {
            assert!(of(side, number, class).contains(now), "{class}");
        }
        // A set of System V's, a row of InnoDB's, a condition that nobody knows for what.
        for (number, class) in [
            (131, "sysv-sem"),
            (0, "row-lock"),
            (0, "cond"),
            (0xfe, "ipc"),
        ] {
            let next = of(Side::User, number, class);
            assert!(next.contains("lockstat -s 3 -p 7 10 "), "{next}");
        }
    }
}
