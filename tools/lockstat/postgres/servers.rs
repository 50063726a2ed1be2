//! PostgreSQL's servers on this machine, as they are when tracing begins: where their processes have their wait events.

use std::collections::HashMap;

use anyhow::{Context, Result};
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::server_process;
use host::procs;
use host::task::all_processes;
use libbpf_rs::{MapCore, MapFlags};
use symbols::places::Places;
use symbols::{files, memory};

/// The variable that has the address of a process's wait event, since release 14.
const VARIABLE: &str = "my_wait_event_info";
/// Names that servers' programs begin with, those of other makers, too.
const PROGRAMS: [&str; 4] = ["postgres", "postmaster", "edb-postgres", "gaussdb"];
/// `MAX_SERVER_PROCESSES` of the BPF side.
const MOST: usize = 16384;
/// Bytes of a file that has the release in it.
const LONGEST_RELEASE: u64 = 16;

/// Major release of each server, by its PID; `None`: nobody knows.
#[derive(Default)]
pub(crate) struct Servers(HashMap<u32, Option<u32>>);

/// A process of a server's.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    tgid: u32,
    parent: u32,
    program: Vec<u8>,
}

/// A process of a server's, and where it has its wait event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backend {
    pub(crate) tgid: u32,
    pub(crate) server: u32,
    /// Address of the variable that has the event's address; `None`: the program has none.
    pub(crate) pointer_at: Option<u64>,
}

/// Those of all servers on this machine.
pub(crate) fn backends(places: &mut Places) -> Vec<Backend> {
    let mut variables: HashMap<u32, Option<u64>> = HashMap::new();
    let processes = processes();
    let backend = |process: &Process| {
        let server = server_of(process, &processes);
        let variable = || places.variable_of_program(server, VARIABLE);
        Backend {
            tgid: process.tgid,
            server,
            pointer_at: *variables.entry(server).or_insert_with(variable),
        }
    };
    processes.iter().take(MOST).map(backend).collect()
}

impl Servers {
    /// Finds them, and tells the BPF side.
    ///
    /// # Errors
    ///
    /// Those of writing into a BPF map.
    pub(crate) fn find(skel: &LockstatSkel<'_>, places: &mut Places) -> Result<Self> {
        let mut servers = Self::default();
        for backend in backends(places) {
            let Some(pointer_at) = backend.pointer_at else {
                continue;
            };
            let (tgid, server) = (backend.tgid, backend.server);
            servers.learn(server);
            let before = switches(tgid);
            let event = event(tgid, pointer_at).map_or(0, |(_, event)| event);
            let slept = before.filter(|before| switches(tgid) == Some(*before));
            let value = server_process {
                pointer_at,
                switches: slept.unwrap_or(0),
                server,
                event: slept.map_or(0, |_| event),
            };
            // SAFETY: plain data is as many initialised bytes.
            let bytes = unsafe { plain::as_bytes(&value) };
            skel.maps
                .server_processes
                .update(&tgid.to_ne_bytes(), bytes, MapFlags::ANY)
                .context("tell BPF programs of a server")?;
        }
        Ok(servers)
    }

    /// Finds out a server's release, once.
    pub(crate) fn learn(&mut self, server: u32) {
        self.0.entry(server).or_insert_with(|| release(server));
    }

    /// Looks whether one has to say which server is meant.
    pub(super) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Major release of a server.
    pub(crate) fn release(&self, server: u32) -> Option<u32> {
        self.0.get(&server).copied().flatten()
    }
}

/// All processes that run a program of such a name, by PID.
fn processes() -> Vec<Process> {
    let process = |tgid| {
        let program = std::fs::read_link(format!("/proc/{tgid}/exe")).ok()?;
        let base = program.file_name()?.to_str()?;
        let is_one = PROGRAMS.iter().any(|name| base.starts_with(name));
        is_one.then_some(())?;
        Some(Process {
            tgid,
            parent: procs::parent(tgid)?,
            program: program.into_os_string().into_encoded_bytes(),
        })
    };
    let mut found: Vec<Process> = all_processes().into_iter().filter_map(process).collect();
    found.sort_unstable_by_key(|process| process.tgid);
    found
}

/// The one that has made a process of its own program, or that process.
fn server_of(process: &Process, all: &[Process]) -> u32 {
    let parent = all.binary_search_by_key(&process.parent, |one| one.tgid);
    match parent {
        Ok(at) if all[at].program == process.program => process.parent,
        _ => process.tgid,
    }
}

/// Times that a process's main thread has left a CPU; `None`: it is gone.
fn switches(tgid: u32) -> Option<u64> {
    let status = procs::status(tgid).ok()?;
    let number = |name| procs::number(&status, name);
    Some(number("voluntary_ctxt_switches:")? + number("nonvoluntary_ctxt_switches:")?)
}

/// Address of the event that a process waits for, and the event; `None`: its memory did not say.
pub(crate) fn event(tgid: u32, pointer_at: u64) -> Option<(u64, u32)> {
    let (mut pointer, mut event) = ([0; 8], [0; 4]);
    let read = memory::read(tgid, pointer_at, &mut pointer).ok()?;
    (read == pointer.len()).then_some(())?;
    let at = u64::from_ne_bytes(pointer);
    let read = memory::read(tgid, at, &mut event).ok()?;
    (read == event.len()).then(|| (at, u32::from_ne_bytes(event)))
}

/// The release that a server's data are of, which it has for its directory.
fn release(server: u32) -> Option<u32> {
    let path = format!("/proc/{server}/cwd/PG_VERSION");
    parse_release(&files::beginning(&path, LONGEST_RELEASE).ok()?)
}

/// `15` and a line's end.
fn parse_release(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_a_number_and_nothing_else() {
        assert_eq!(parse_release(b"15\n"), Some(15));
        assert_eq!(parse_release(b"18"), Some(18));
        for bytes in [
            &b""[..],
            b"9.6\n",
            b"15 \x1b[31m",
            b"\xff\xfe",
            b"99999999999",
        ] {
            assert_eq!(parse_release(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_server_is_the_parent_of_the_same_program() {
        let process = |tgid, parent, program: &str| Process {
            tgid,
            parent,
            program: program.into(),
        };
        let all = [
            process(10, 1, "/15/postgres"),
            process(11, 10, "/15/postgres"),
            process(12, 11, "/16/postgres"),
            process(13, 12, "/16/postgres"),
        ];
        let servers: Vec<u32> = all.iter().map(|one| server_of(one, &all)).collect();
        assert_eq!(servers, [10, 10, 12, 12]);
    }

    #[test]
    fn a_process_without_the_variable_has_no_event() {
        assert_eq!(event(std::process::id(), 8), None);
        assert_eq!(event(u32::MAX, 0), None);
    }
}
