//! The kernel's account of BPF programs: how often each ran, for how long.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::query::ProgInfoIter;

/// Keeps the accounting switched on as long as it lives. It costs some 20 ns per program run.
pub(crate) struct Enabled(#[allow(dead_code, reason = "held for its drop")] OwnedFd);

impl Enabled {
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: takes a plain number, returns a descriptor or a negative error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd)).context("enable BPF statistics");
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// One program's account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) run_time_ns: u64,
    pub(crate) runs: u64,
}

/// Programs by their ID.
pub(crate) type Programs = BTreeMap<u32, Program>;

/// Every program that is loaded now.
pub(crate) fn programs() -> Programs {
    let program = |info: libbpf_rs::query::ProgramInfo| {
        let name = info.name.to_string_lossy().into_owned();
        (
            info.id,
            Program {
                name,
                run_time_ns: info.run_time_ns,
                runs: info.run_cnt,
            },
        )
    };
    ProgInfoIter::default().map(program).collect()
}

/// What the programs of `ids` did between two looks; those that did not run are left out.
pub(crate) fn between(before: &Programs, after: &Programs, ids: &[u32]) -> Vec<Program> {
    let grown = |id: &u32| {
        let (old, new) = (before.get(id)?, after.get(id)?);
        let runs = new.runs.checked_sub(old.runs).filter(|&runs| runs > 0)?;
        let run_time_ns = new.run_time_ns.saturating_sub(old.run_time_ns);
        Some(Program {
            name: new.name.clone(),
            run_time_ns,
            runs,
        })
    };
    ids.iter().filter_map(grown).collect()
}

#[cfg(test)]
mod tests {
    use super::{Program, Programs, between};

    fn programs(accounts: &[(u32, u64, u64)]) -> Programs {
        let program = |&(id, run_time_ns, runs)| {
            (
                id,
                Program {
                    name: format!("p{id}"),
                    run_time_ns,
                    runs,
                },
            )
        };
        accounts.iter().map(program).collect()
    }

    #[test]
    fn only_owned_programs_that_ran_are_counted() {
        let before = programs(&[(1, 100, 1), (2, 100, 1), (3, 0, 0)]);
        let after = programs(&[(1, 700, 4), (2, 900, 9), (3, 0, 0)]);
        let name = "p1".to_owned();
        let expected = [Program {
            name,
            run_time_ns: 600,
            runs: 3,
        }];
        assert_eq!(between(&before, &after, &[1, 3, 4]), expected);
    }
}
