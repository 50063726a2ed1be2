//! Targets among processes of all kinds, after all that may become of them: those that the user asked for.

use bpf::runqlat::types::{glob, target_config, target_mode};
use fastrand::Rng;

use crate::host::{self, machine::Task as Body};
use crate::population::{Population, Process, TOOL, Task, Wanted};
use crate::tasks::{KTHREAD, NAMESPACES, NO_EXEC, dress_as};

/// Every character of a pattern is a position: a letter, any letter or any number of letters.
pub(crate) fn glob_of(pattern: &[u8]) -> glob {
    let mut glob = glob {
        final_mask: 1 << pattern.len(),
        ..glob::default()
    };
    for (at, taken) in pattern.iter().enumerate() {
        match taken {
            b'*' => glob.star |= 1 << at,
            b'?' => glob.accept.iter_mut().for_each(|mask| *mask |= 1 << at),
            letter => glob.accept[usize::from(*letter)] |= 1 << at,
        }
    }
    glob
}

/// A step for each position: `taken` says how many first letters of the name the pattern's beginning may take.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let mut taken = vec![false; name.len() + 1];
    taken[0] = true;
    for position in pattern {
        if *position == b'*' {
            let least = taken.iter().position(|taken| *taken);
            taken[least.unwrap_or(name.len() + 1)..].fill(true);
            continue;
        }
        for length in (0..taken.len()).rev() {
            let takes = |letter: u8| *position == letter || *position == b'?';
            taken[length] = length > 0 && taken[length - 1] && takes(name[length - 1]);
        }
    }
    taken[name.len()]
}

const PATTERNS: [&[u8]; 7] = [b"a*", b"*b", b"*bab*", b"?a*a", b"ab?*", b"*a*b*a*", b"aab"];

/// Options that the user gives.
struct Asked {
    config: target_config,
    pattern: &'static [u8],
    /// A place in the population's cgroups.
    cgroup: Option<usize>,
}

impl Asked {
    fn random(population: &mut Population) -> Self {
        let is_followed = population.is_followed;
        let own_tgid = population.processes[1]
            .leader()
            .number(population.is_inside);
        let count = population.cgroups.len();
        let rng = &mut population.rng;
        let cgroup = (rng.u32(0..3) == 0).then(|| rng.usize(0..count));
        let config = target_config {
            mode: target_mode(rng.u32(0..5).saturating_sub(2)),
            pid_namespace: NAMESPACES[0],
            own_tgid,
            by_tgid: u32::from(is_followed || rng.u32(0..3) == 0),
            by_tid: u32::from(rng.u32(0..4) == 0),
            by_comm: u32::from(rng.u32(0..3) == 0),
            follow: u32::from(is_followed),
            cgroup_id: cgroup.map_or(0, |at| population.cgroups[at].id),
            own_since_ns: rng.u64(0..20),
            ..target_config::default()
        };
        let pattern = rng.choice(PATTERNS).expect("some");
        let asked = Self {
            config,
            pattern,
            cgroup,
        };
        asked.choose(population);
        asked
    }

    /// Asks for some by their numbers, and tells the programs all.
    fn choose(&self, population: &mut Population) {
        let host = &population.host;
        let inside = population.is_inside;
        host.set("targets", &self.config);
        host.set("comm_glob", &glob_of(self.pattern));
        host.set("members_in_hash", &u32::from(population.is_hashed));
        host.write("pid_namespace_level", u32::from(inside));
        for process in &mut population.processes[2..] {
            let is_visible = process.leader().number(inside) != 0
                && (!inside || process.leader().facts.inner_namespace == NAMESPACES[0]);
            if !is_visible {
                continue;
            }
            if self.config.by_tgid == 1 && population.rng.bool() {
                let is_command = self.config.follow == 1;
                host.tell(
                    "host_want_process",
                    (process.leader().number(inside), !is_command),
                );
                process.wanted = if is_command {
                    Wanted::FromExec
                } else {
                    Wanted::Yes
                };
            }
            for task in &mut process.tasks {
                if self.config.by_tid == 1 && population.rng.bool() {
                    host.tell("host_want_thread", (task.number(inside),));
                    task.is_asked = true;
                }
            }
        }
    }

    fn takes(&self, population: &Population, process: &Process, task: &Task) -> bool {
        let is_kernel = task.facts.flags & KTHREAD != 0;
        let is_of_kind = match self.config.mode.0 {
            0 => true,
            1 => !is_kernel,
            _ => is_kernel,
        };
        let is_in_namespace = !population.is_inside
            || task.facts.inner_pid != 0 && task.facts.inner_namespace == NAMESPACES[0];
        let leader = &process.leader().facts;
        // The tool forks a process to read files, which executes nothing.
        let is_tools_child = self.config.follow == 0
            && process.parent == TOOL
            && leader.flags & NO_EXEC != 0
            && leader.start_time >= self.config.own_since_ns;
        let is_tools = process.serial == TOOL || is_tools_child;
        let mut above = Some(task.cgroup);
        while let Some(cgroup) = above
            && self.cgroup.is_some_and(|it| it != cgroup)
        {
            above = population.cgroups[cgroup].parent;
        }
        let comm = task.facts.comm;
        let length = comm.iter().position(|byte| *byte == 0).expect("its end");
        is_of_kind
            && is_in_namespace
            && !is_tools
            && above.is_some()
            && (self.config.by_comm == 0 || matches(self.pattern, &comm[..length]))
            && (self.config.by_tgid == 0 || process.wanted == Wanted::Yes)
            && (self.config.by_tid == 0 || task.is_asked)
    }
}

fn is_told(population: &Population, body: Body) -> bool {
    population.host.ask::<bool>("host_is_member", (body,))
}

fn assert_targets(population: &Population, asked: &Asked, case: &str) {
    for process in &population.processes {
        for task in &process.tasks {
            let is_target = asked.takes(population, process, task);
            let is_told = is_told(population, task.body);
            assert_eq!(
                is_told, is_target,
                "{case}, {:?}, {:?}",
                process.wanted, task.facts
            );
            let since_ns = population
                .host
                .ask::<u64>("host_waiting_since", (task.body,));
            assert_eq!(
                since_ns, 0,
                "{case}: the state of another, {:?}",
                task.facts
            );
        }
        if asked.config.by_tgid == 1 {
            let is_wanted = process.wanted != Wanted::No;
            let number = process.leader().number(population.is_inside);
            let is_visible = number != 0 && process.leader().facts.inner_namespace == NAMESPACES[0]
                || !population.is_inside;
            assert_eq!(
                is_visible && population.is_listed(number),
                is_wanted,
                "{case}"
            );
        }
    }
}

fn act(population: &mut Population) -> &'static str {
    let mut rng = Rng::with_seed(population.rng.u64(..));
    let process = rng.usize(0..population.processes.len());
    let may_exit = process > 1;
    let tasks = population.processes[process].tasks.len();
    match rng.u32(0..8) {
        0 | 1 if population.processes.len() < 16 => {
            population.fork(process);
            "fork"
        }
        2 if tasks < 4 && population.processes.len() < 16 => {
            population.start_thread(process);
            "thread"
        }
        3 => {
            population.rename(process, rng.usize(0..tasks));
            "rename"
        }
        4 if may_exit => {
            population.exec(process);
            "exec"
        }
        5 if may_exit => {
            let number = population.processes[process]
                .leader()
                .number(population.is_inside);
            population.exit(process);
            assert!(!population.is_listed(number), "{number} has exited");
            "exit"
        }
        6 if tasks > 1 => {
            population.exit_thread(process);
            "thread's exit"
        }
        _ => {
            population.attach(process);
            // User space looks at the leader's threads, too.
            population.look_at_all();
            "attach"
        }
    }
}

/// Children of a command that find no room are no targets, and are counted.
fn assert_full(population: &mut Population, seed: u64) {
    population.host.tell("host_fill", ());
    let mut lost = 0;
    for process in 0..population.processes.len().min(8) {
        let is_wanted = population.processes[process].wanted == Wanted::Yes;
        population.fork(process);
        lost += u64::from(population.is_followed && is_wanted);
    }
    let full = population.host.read::<u64>("targets_full");
    assert_eq!(full, lost, "seed {seed}");
}

/// The tasks that stand for CPUs that have nothing to do have the number 0, and no name would make them targets.
fn assert_idle_is_none(population: &Population, case: &str) {
    let mut idle = *population.processes[0].leader();
    (idle.facts.pid, idle.facts.tgid) = (0, 0);
    idle.body = population.host.ask::<Body>("host_body", ());
    idle.facts.leader = idle.body;
    dress_as(&population.host, idle.body, &idle.facts);
    population.call("host_seed", idle.body);
    assert!(!is_told(population, idle.body), "{case}");
}

#[test]
fn targets_are_who_was_asked_for() {
    let object = host::compile("runqlat");
    for seed in 0..400 {
        let mut population = Population::new(&object, seed);
        let asked = Asked::random(&mut population);
        population.look_at_all();
        assert_idle_is_none(&population, &format!("seed {seed}, {:?}", asked.config));
        let mut did = "nothing";
        for step in 0..200 {
            let case = format!("seed {seed}, step {step}, {did}, {:?}", asked.config);
            assert_targets(&population, &asked, &case);
            did = act(&mut population);
        }
        let moves = population.host.ask::<u64>("host_cgroup_moves", ());
        assert_eq!(moves, population.cgroup_moves, "seed {seed}");
        assert_full(&mut population, seed);
    }
}
