//! The next question: a tool and its command line for what has been found.

use host::waits::Reason;
use profile::escape::terminal;
use session::next::{self, Step};

use crate::pressure::interval::{Interval, index_of};
use crate::pressure::psi::Resource;
use crate::pressure::ranking::{self, Ranked};
use crate::pressure::waits::Waiting;

/// A command line and what it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) command: String,
    pub(crate) answers: &'static str,
}

impl Hint {
    fn of(step: Step, target: &str) -> Self {
        Self::saying(step, target, step.answers())
    }

    fn saying(step: Step, target: &str, answers: &'static str) -> Self {
        Self {
            command: step.command(target),
            answers,
        }
    }
}

/// Hint where nothing is short and all waits are idle: for whatever threads wait for, of the process asked about.
pub(crate) fn of_idle(asked: Option<u32>) -> Hint {
    let target = asked.map_or(String::new(), |tgid| format!("-p {tgid}"));
    Hint::saying(Step::Waits, &target, "where threads wait, and why")
}

/// Hint for waits of which nobody knows yet whether they are idle.
pub(crate) fn of_undecided(row: &Waiting) -> Hint {
    let target = format!("-p {}", row.tgid);
    Hint::saying(Step::Locks, &target, "whom these threads wait for")
}

/// Hint for the largest wait that is not idle.
pub(crate) fn of_waits(row: &Waiting) -> Hint {
    let step = match row.reason {
        // lockstat leaves out what may be a condition variable.
        Reason::Futex if row.is_lock => Step::Locks,
        Reason::Lock | Reason::FileLock | Reason::Semaphore => Step::Locks,
        Reason::PageFault => Step::MajorFaults,
        Reason::BlockIo => Step::WaitsInStateD,
        // Its answer names the one who ends these waits, too.
        _ => Step::Why,
    };
    Hint::of(step, &format!("-p {}", row.tgid))
}

/// At most one for the heaviest victim and one for the heaviest culprit, as the lists have them, and before them one for the disk itself.
pub(crate) fn of_resource(interval: &Interval, resource: Resource) -> Vec<Hint> {
    let Some(index) = index_of(resource) else {
        return hints(interval, resource, None, None);
    };
    let victims = ranking::folded(ranking::victims(interval, index));
    let culprits = ranking::folded(ranking::culprits(interval, index));
    let (victim, culprit) = (ranking::lasting(&victims), ranking::lasting(&culprits));
    hints(interval, resource, victim, culprit)
}

fn hints(
    interval: &Interval,
    resource: Resource,
    victim: Option<&Ranked<'_>>,
    culprit: Option<&Ranked<'_>>,
) -> Vec<Hint> {
    let hint = |who: Option<&Ranked<'_>>, step: Step| Some(Hint::of(step, &target(who?)?));
    let device = (resource == Resource::Io).then(|| of_disk(interval));
    let pair = match resource {
        Resource::Cpu if interval.quota_at_fault().is_some() => [of_quota(interval), None],
        Resource::Cpu => [hint(victim, Step::RunQueue), hint(culprit, Step::CpuTime)],
        Resource::Memory => [hint(victim, Step::Waits), hint(culprit, Step::PageFaults)],
        Resource::Io => [
            hint(victim, Step::WaitsInStateD),
            hint(culprit, Step::BlockIo),
        ],
        Resource::Irq => [
            (interval.pressure(resource) > 0.0).then(|| Hint::of(Step::KernelTime, "")),
            None,
        ],
    };
    debug_assert!(index_of(resource).is_some() || victim.is_none());
    let found = device.into_iter().chain(pair.into_iter().flatten());
    let found: Vec<Hint> = found.collect();
    if found.is_empty() {
        return of_machine(interval, resource).into_iter().collect();
    }
    found
}

/// Hint where there is no process to name: all of them have ended.
fn of_machine(interval: &Interval, resource: Resource) -> Option<Hint> {
    let step = match resource {
        Resource::Cpu
            if interval
                .quota_at_fault()
                .is_some_and(|quota| quota.group.is_v2) =>
        {
            Step::Groups
        }
        Resource::Cpu => Step::RunQueue,
        Resource::Memory => Step::PageFaults,
        Resource::Io | Resource::Irq => return None,
    };
    Some(Hint::of(step, ""))
}

/// Neighbours have no part in it: what spends the quota.
fn of_quota(interval: &Interval) -> Option<Hint> {
    let quota = interval.quota_at_fault()?;
    let target = quota.group.target(quota.victim)?;
    Some(Hint::saying(
        Step::CpuTime,
        &target,
        "what uses up the quota",
    ))
}

/// The busiest disk's requests, or all disks'.
fn of_disk(interval: &Interval) -> Hint {
    let disk = interval
        .usage
        .disks
        .first()
        .filter(|disk| disk.busy_percent > 0.0);
    let which = match disk {
        Some(disk) if next::is_plain(&disk.name) => format!("-d {}", disk.name),
        _ => String::new(),
    };
    Hint::of(Step::Disks, &which)
}

/// `-p PID`, or the name of several processes, or of those that come and go, if a shell takes it as it is.
fn target(who: &Ranked<'_>) -> Option<String> {
    let party = who.party?;
    let name = terminal(&party.comm);
    let by_name = || next::is_plain(&name).then(|| format!("--comm {name}"));
    let by_id = || party.tgid.map(|tgid| format!("-p {tgid}"));
    match who.is_crowd {
        true => by_name().or_else(by_id),
        false => by_id().or_else(by_name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::parties::Party;
    use host::utilisation::{DiskUse, Use};

    fn party(comm: &str, tgid: Option<u32>) -> Party {
        Party {
            comm: comm.into(),
            tgid,
            ..Party::default()
        }
    }

    #[test]
    fn commands_name_the_process_and_foreign_names_reach_no_shell() {
        let interval = Interval::default();
        let crowd = party("nginx", Some(8));
        let crowd = Ranked {
            is_crowd: true,
            ..Ranked::of(&crowd)
        };
        let of_crowd = hints(&interval, Resource::Cpu, Some(&crowd), None);
        assert_eq!(of_crowd[0].command, "runqlat --comm nginx 5 1");
        let commands = |victim: &Party, culprit: &Party| -> Vec<String> {
            let [victim, culprit] = [victim, culprit].map(Ranked::of);
            hints(&interval, Resource::Cpu, Some(&victim), Some(&culprit))
                .into_iter()
                .map(|hint| hint.command)
                .collect()
        };
        assert_eq!(
            commands(&party("db", Some(7)), &party("cc1", None)),
            ["runqlat -p 7 5 1", "profile --comm cc1 10"]
        );
        assert_eq!(
            commands(&party("a;reboot", None), &party("$(x)", None)),
            ["runqlat 5 1"]
        );
        assert_eq!(
            commands(&party("-x", None), &party("", None)),
            ["runqlat 5 1"]
        );
    }

    #[test]
    fn a_short_disk_leads_to_biolatency() {
        let on = |name: &str, busy_percent| {
            let disk = DiskUse {
                name: name.into(),
                busy_percent,
                ..DiskUse::default()
            };
            let interval = Interval {
                usage: Use {
                    disks: vec![disk],
                    ..Use::default()
                },
                ..Interval::default()
            };
            hints(&interval, Resource::Io, None, None).remove(0).command
        };
        assert_eq!(on("nvme0n1", 50.0), "biolatency -d nvme0n1 -P 5 1");
        assert_eq!(on("nvme0n1", 0.0), "biolatency -P 5 1");
        assert_eq!(on("cciss!c0d0", 50.0), "biolatency -P 5 1");
    }
}
