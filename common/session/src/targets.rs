//! Which tasks the user asked for: the same options in every tool.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use host::clock::monotonic_ns;
use host::privileges::{self, Capabilities};
use host::procs;
use host::task;
use libbpf_rs::{MapCore, MapFlags};
use profile::escape::{quoted, terminal};
use stacks::unwind::Wanted;

use crate::glob::Glob;
use crate::probe::Kernel;

/// As many IDs as the BPF side's maps hold (`MAX_TARGET_IDS`).
const MAX_IDS: usize = 4096;

/// Target options, evaluated on the task that an event is about.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Targets")]
pub struct Targets {
    /// Only these processes (all their threads)
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',')]
    pub pids: Vec<u32>,

    /// Only these threads
    #[arg(short, long = "tid", value_name = "TID", value_delimiter = ',')]
    pub tids: Vec<u32>,

    /// Only threads whose name matches, e.g. 'nginx*'
    #[arg(long, value_name = "GLOB")]
    pub comm: Option<Glob>,

    /// Only tasks in this cgroup v2 directory and below
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Only user threads (no kernel threads)
    #[arg(short, long, conflicts_with = "kernel_threads")]
    pub user_threads: bool,

    /// Only kernel threads
    #[arg(short, long)]
    pub kernel_threads: bool,

    /// Start COMMAND, trace it and its children until it exits
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "tids"])]
    pub command: Vec<OsString>,
}

impl Targets {
    /// Capabilities that a command takes, if there is one.
    pub fn capabilities(&self) -> Capabilities {
        if self.command.is_empty() {
            Capabilities::empty()
        } else {
            privileges::FOR_COMMAND
        }
    }
}

/// Kinds of threads; the values of the BPF side's `enum target_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Both kinds.
    #[default]
    All = 0,
    /// No kernel threads.
    UserThreads = 1,
    /// Nothing but kernel threads.
    KernelThreads = 2,
}

/// What the BPF side needs to know; see `struct target_config`.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Kinds of threads.
    pub mode: Mode,
    /// Inode of the tool's PID namespace.
    pub pid_namespace: u32,
    /// The tool itself.
    pub own_tgid: u32,
    /// When, ns on the clock of [`monotonic_ns`], it had forked nothing yet.
    pub own_since_ns: u64,
    /// Process IDs; empty: any.
    pub tgids: Vec<u32>,
    /// Thread IDs; empty: any.
    pub tids: Vec<u32>,
    /// Name pattern.
    pub comm: Option<Glob>,
    /// cgroup v2 ID; 0: any.
    pub cgroup_id: u64,
    /// Children of targets are targets.
    pub follow: bool,
}

impl Targets {
    /// Tells if nothing was chosen.
    pub fn are_all(&self) -> bool {
        let has_names = self.comm.is_some() || self.cgroup.is_some();
        let has_kind = self.user_threads || self.kernel_threads;
        let has_ids = !self.pids.is_empty() || !self.tids.is_empty();
        !(has_ids || has_names || has_kind) && self.command.is_empty()
    }

    /// Options that choose the same for another command: processes and threads that are still there, and names, quoted for a shell
    /// where they have to be. Empty: nothing was chosen, or nothing is left of it.
    pub fn to_options(&self, is_there: fn(u32) -> bool) -> String {
        let there = |ids: &[u32]| -> Option<String> {
            let ids = ids.iter().filter(|id| is_there(**id));
            let ids: Vec<String> = ids.map(u32::to_string).collect();
            (!ids.is_empty()).then(|| ids.join(","))
        };
        let comm = self.comm.as_ref().map(Glob::pattern);
        let cgroup = self.cgroup.as_deref().and_then(Path::to_str);
        let options = [
            ("-p", there(&self.pids)),
            ("-t", there(&self.tids)),
            ("--comm", comm.and_then(as_word)),
            ("--cgroup", cgroup.and_then(as_word)),
        ];
        let given = options.into_iter();
        let given = given.filter_map(|(option, value)| Some(format!("{option} {}", value?)));
        given.collect::<Vec<String>>().join(" ")
    }

    /// Checks that everything named exists. Nothing has been loaded yet.
    ///
    /// # Errors
    ///
    /// A process, thread or cgroup that does not exist.
    pub fn resolve(&self) -> Result<Settings> {
        for &pid in &self.pids {
            if !Path::new(&format!("/proc/{pid}")).exists() {
                bail!("no process {pid}; it may have exited (see ps -e)");
            }
            require_leader(pid)?;
        }
        for &tid in &self.tids {
            if !Path::new(&format!("/proc/{tid}")).exists() {
                bail!("no thread {tid}; it may have exited (see ps -eL)");
            }
        }
        if self.pids.len() > MAX_IDS || self.tids.len() > MAX_IDS {
            bail!("more than {MAX_IDS} IDs; use --comm or --cgroup");
        }
        let namespace = fs::metadata("/proc/self/ns/pid")
            .context("read /proc/self/ns/pid; is /proc mounted?")?;
        Ok(Settings {
            mode: match (self.user_threads, self.kernel_threads) {
                (true, _) => Mode::UserThreads,
                (_, true) => Mode::KernelThreads,
                _ => Mode::All,
            },
            // Namespace inode numbers are 32 bits wide.
            pid_namespace: u32::try_from(namespace.ino()).unwrap_or(0),
            own_tgid: std::process::id(),
            own_since_ns: monotonic_ns(),
            tgids: self.pids.clone(),
            tids: self.tids.clone(),
            comm: self.comm.clone(),
            cgroup_id: self
                .cgroup
                .as_deref()
                .map(cgroup_id)
                .transpose()?
                .unwrap_or(0),
            follow: !self.command.is_empty(),
        })
    }

    /// Processes whose mappings are worth reading before anything happens.
    pub fn processes_at_start(&self) -> Vec<u32> {
        if !self.pids.is_empty() {
            return self.pids.clone();
        }
        if self.command.is_empty() {
            task::all_processes()
        } else {
            Vec::new()
        }
    }

    /// Whose code is worth knowing before a stack needs it.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            at_start: self.processes_at_start(),
            later: self.pids.is_empty() && self.tids.is_empty() && self.command.is_empty(),
        }
    }
}

impl Settings {
    /// Whether numbers of processes or threads are asked for, which others may come to have.
    pub fn has_ids(&self) -> bool {
        !self.tgids.is_empty() || !self.tids.is_empty()
    }

    /// Programs of `members.bpf.h` and `switches.bpf.h`: whether this kernel and these targets need them.
    pub fn programs(&self, kernel: &Kernel) -> Vec<(&'static str, bool)> {
        let has_state = kernel.tracepoint_arguments("sched_switch") == Some(4);
        vec![
            ("sched_switch", has_state),
            ("sched_switch_pre_5_18", !has_state),
            ("task_freed", !kernel.has_task_storage()),
            ("sched_process_exec", self.follow),
            ("sched_process_exit", self.follow),
            ("task_rename", self.comm.is_some()),
            ("cgroup_attach_task", self.cgroup_id != 0),
        ]
    }

    /// Narrows the targets to the process `tgid`, from its exec on, and what it starts.
    pub fn only_tree_of(&mut self, tgid: u32) {
        self.tgids = vec![tgid];
        self.follow = true;
    }

    /// Fills the BPF side's ID maps.
    ///
    /// # Errors
    ///
    /// When the kernel refuses an entry.
    pub fn fill(&self, tgids: &impl MapCore, tids: &impl MapCore) -> Result<()> {
        let wanted = [u8::from(!self.follow)];
        for tgid in &self.tgids {
            tgids
                .update(&tgid.to_ne_bytes(), &wanted, MapFlags::ANY)
                .context("set target PIDs")?;
            forget_ended(tgids, *tgid);
        }
        for tid in &self.tids {
            tids.update(&tid.to_ne_bytes(), &[1], MapFlags::ANY)
                .context("set target TIDs")?;
            forget_ended(tids, *tid);
        }
        Ok(())
    }
}

/// From now on the BPF side sees who comes to have this number; before, only who had it.
fn forget_ended(ids: &impl MapCore, id: u32) {
    if !Path::new(&format!("/proc/{id}")).exists() {
        // The BPF side may have been first.
        let _ = ids.delete(&id.to_ne_bytes());
    }
}

/// `-p` with a thread's ID would match nothing: say so instead.
fn require_leader(pid: u32) -> Result<()> {
    let status = procs::status(pid).unwrap_or_default();
    match procs::number(&status, "Tgid:") {
        Some(tgid) if tgid != u64::from(pid) => {
            bail!("{pid} is a thread of process {tgid}; use -t {pid} or -p {tgid}")
        }
        _ => Ok(()),
    }
}

/// A cgroup's ID is its directory's inode number (kernfs, 64-bit machines).
pub(crate) fn cgroup_id(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path).with_context(|| format!("cgroup {}", path.display()))?;
    let kind = rustix::fs::statfs(path).map(|stat| stat.f_type);
    if kind != Ok(libc::CGROUP2_SUPER_MAGIC) {
        let mounted = match cgroup2_mount() {
            Some(mount) => format!("cgroup v2 is mounted at {mount}"),
            None => "cgroup v2 is not mounted here: mount -t cgroup2 none /mnt".into(),
        };
        bail!(
            "cgroup {}: not a cgroup v2 directory; {mounted}",
            path.display()
        );
    }
    Ok(metadata.ino())
}

/// Where cgroup v2 is mounted.
pub fn cgroup2_mount() -> Option<String> {
    procs::mounted(|kind, _| kind == "cgroup2")
}

/// A name as a word of a command; `None`: a terminal would obey it, or it would be taken for an option or the end of options.
fn as_word(name: &str) -> Option<String> {
    let is_word = !name.starts_with('-') && !name.contains(" -- ") && terminal(name) == name;
    is_word.then(|| quoted(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_process_is_named() {
        let targets = Targets {
            pids: vec![u32::MAX],
            ..Targets::default()
        };
        let message = targets.resolve().unwrap_err().to_string();
        assert!(message.starts_with("no process 4294967295"), "{message}");
    }

    #[test]
    fn options_for_another_command_name_what_is_there_as_words_for_a_shell() {
        let targets = Targets {
            pids: vec![7, 8, 9],
            tids: vec![8],
            comm: Some("cc1".parse().unwrap()),
            cgroup: Some("/sys/fs/cgroup/a.slice".into()),
            ..Targets::default()
        };
        assert_eq!(
            targets.to_options(|id| id != 8),
            "-p 7,9 --comm cc1 --cgroup /sys/fs/cgroup/a.slice"
        );
        let hostile = Targets {
            pids: vec![8],
            comm: Some("cc*; reboot".parse().unwrap()),
            cgroup: Some("/a b/$(c)".into()),
            ..Targets::default()
        };
        assert_eq!(
            hostile.to_options(|id| id != 8),
            "--comm 'cc*; reboot' --cgroup '/a b/$(c)'"
        );
    }

    #[test]
    fn a_directory_elsewhere_is_no_cgroup() {
        let message = cgroup_id(Path::new("/tmp")).unwrap_err().to_string();
        assert!(
            message.starts_with("cgroup /tmp: not a cgroup v2 directory; cgroup v2 is"),
            "{message}"
        );
    }
}
