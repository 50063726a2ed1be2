//! What a snapshot amounts to: deadlocks, and who keeps how many others waiting.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use profile::rank::Rank;
use profile::sums::groups;

use super::graph::{self, Edge, Graph};
use super::lock::{Holder, Identity, Wait};
use super::snapshot::Snapshot;
use super::thread::Threads;

/// Why threads can never go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each waits for the next, the last for the first.
    Circle,
    /// All threads of a process wait, for locks that do not say who has them.
    Process,
    /// The lock's holder has exited.
    Abandoned,
}

/// Threads that keep each other from going on.
#[derive(Clone, Debug)]
pub(crate) struct Deadlock {
    pub(crate) kind: Kind,
    /// Circles: in the order of waiting.
    pub(crate) members: Vec<usize>,
    /// Threads that wait for members, directly or not.
    pub(crate) behind: Vec<usize>,
    /// A time-out will end it.
    pub(crate) timed: bool,
    /// All holders are sure.
    pub(crate) certain: bool,
}

/// What others wait for in the end, and that itself waits for nothing known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    Thread(usize),
    /// A lock whose holder is not known: its first waiter's wait stands for it.
    Lock(usize),
}

/// Locks whose waiters are told together.
#[derive(PartialEq, Eq, Hash)]
enum Place<'a> {
    Lock(&'a Identity),
    /// One lock or several that nobody tells apart: their sort, their name, and the address space of those without one.
    Alike(&'static str, &'a str, Option<u64>),
}

impl<'a> Place<'a> {
    fn of(wait: &'a Wait) -> Self {
        let Identity::Hidden { space, .. } = wait.lock else {
            return Self::Lock(&wait.lock);
        };
        let space = wait.name.is_empty().then_some(space);
        Self::Alike(wait.kind.name(), &wait.name, space)
    }
}

/// A root and everybody behind it.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) root: Root,
    /// Waits (by index) directly at the root.
    pub(crate) direct: Vec<usize>,
    pub(crate) behind: Vec<usize>,
}

/// The whole of it.
pub(crate) struct Verdict {
    pub(crate) deadlocks: Vec<Deadlock>,
    /// Most threads behind first; without those behind deadlocks.
    pub(crate) trees: Vec<Tree>,
    /// Waits by waiter.
    pub(crate) by_waiter: HashMap<usize, usize>,
    /// Waiters by holder.
    pub(crate) waiters: HashMap<usize, Vec<usize>>,
}

impl Verdict {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let (threads, waits) = (&snapshot.threads, &snapshot.waits);
        let edges: Vec<Edge> = waits.iter().map(|wait| wait.edge(threads)).collect();
        let processes: Vec<u32> = threads
            .all
            .iter()
            // The dead release nothing; no process has the ID 0.
            .map(|t| if t.is_dead() { 0 } else { t.task.tgid })
            .collect();
        let graph = Graph::new(&edges, &processes);
        let mut verdict = Self {
            deadlocks: Vec::new(),
            trees: Vec::new(),
            by_waiter: (0..waits.len()).map(|i| (waits[i].waiter, i)).collect(),
            waiters: graph.waiters(),
        };
        verdict.find_circles(&graph, waits);
        let stuck = graph.stuck();
        verdict.find_abandoned(waits);
        verdict.find_stuck_processes(threads, waits, &stuck);
        verdict.find_trees(waits);
        let wanted = |members: &[usize]| members.iter().any(|t| threads.all[*t].wanted);
        verdict
            .deadlocks
            .retain(|deadlock| wanted(&deadlock.members) || wanted(&deadlock.behind));
        verdict.trees.retain(|tree| wanted(&tree.behind));
        verdict
    }

    fn add(&mut self, kind: Kind, members: Vec<usize>, timed: bool, certain: bool) {
        let behind = graph::behind(&members, &self.waiters);
        self.deadlocks.push(Deadlock {
            kind,
            members,
            behind,
            timed,
            certain,
        });
    }

    fn find_circles(&mut self, graph: &Graph<'_>, waits: &[Wait]) {
        for members in graph.cycles() {
            let of = |thread: &usize| &waits[self.by_waiter[thread]];
            // Threads that wait for each other's end, and for no lock, are not our business.
            if !members.iter().any(|thread| of(thread).kind.is_lock()) {
                continue;
            }
            let timed = members.iter().any(|thread| of(thread).timed);
            let certain = members
                .iter()
                .all(|thread| matches!(of(thread).holder, Holder::Thread(_)));
            self.add(Kind::Circle, members, timed, certain);
        }
    }

    fn find_abandoned(&mut self, waits: &[Wait]) {
        let is_abandoned =
            |wait: &&Wait| wait.kind.is_lock() && matches!(wait.holder, Holder::Gone(_));
        let waits_for = waits.iter().filter(is_abandoned);
        let locks = groups(waits_for.map(|wait| (&wait.lock, wait.waiter)));
        let mut found: Vec<Vec<usize>> = locks.into_values().collect();
        found.sort();
        for members in found {
            let timed = members.iter().all(|t| waits[self.by_waiter[t]].timed);
            self.add(Kind::Abandoned, members, timed, true);
        }
    }

    /// What is stuck for another reason than a known deadlock, process by process, if a lock is part of it.
    fn find_stuck_processes(&mut self, threads: &Threads, waits: &[Wait], stuck: &HashSet<usize>) {
        let explained: HashSet<usize> = self
            .deadlocks
            .iter()
            .flat_map(|deadlock| deadlock.members.iter().chain(&deadlock.behind).copied())
            .collect();
        let others = stuck.difference(&explained);
        let processes = groups(others.map(|&thread| (threads.all[thread].task.tgid, thread)));
        let mut found: Vec<Vec<usize>> = processes.into_values().collect();
        found.sort();
        for mut members in found {
            members.sort_unstable();
            let of = |thread: &usize| &waits[self.by_waiter[thread]];
            if members.iter().any(|thread| of(thread).kind.is_lock()) {
                let certain = members.iter().all(|thread| of(thread).is_of_one_process());
                self.add(Kind::Process, members, false, certain);
            }
        }
    }

    fn find_trees(&mut self, waits: &[Wait]) {
        let dead: HashSet<usize> = self
            .deadlocks
            .iter()
            .flat_map(|deadlock| deadlock.members.iter().chain(&deadlock.behind).copied())
            .collect();
        let mut at_thread: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut at_lock: HashMap<Place<'_>, Vec<usize>> = HashMap::new();
        for (index, wait) in waits.iter().enumerate() {
            if dead.contains(&wait.waiter) || !self.matters(waits, wait) {
                continue;
            }
            match wait.holder.thread() {
                Some(holder) if self.waits_itself(waits, holder) => {}
                Some(holder) => at_thread.entry(holder).or_default().push(index),
                None => at_lock.entry(Place::of(wait)).or_default().push(index),
            }
        }
        let threads = at_thread
            .into_iter()
            .map(|(thread, direct)| (Root::Thread(thread), direct));
        let locks = at_lock
            .into_values()
            .map(|direct| (Root::Lock(direct[0]), direct));
        let roots: Vec<(Root, Vec<usize>)> = threads.chain(locks).collect();
        for (root, direct) in roots {
            let waiters: Vec<usize> = direct.iter().map(|wait| waits[*wait].waiter).collect();
            let mut behind = graph::behind(&waiters, &self.waiters);
            behind.extend(waiters);
            behind.sort_unstable();
            self.trees.push(Tree {
                root,
                direct,
                behind,
            });
        }
        self.trees
            .rank_by_key(|tree| (Reverse(tree.behind.len()), tree.behind.clone()));
    }

    /// Locks do; a join only when somebody waits for a lock behind it.
    fn matters(&self, waits: &[Wait], wait: &Wait) -> bool {
        wait.kind.is_lock()
            || wait.kind.is_join()
                && graph::behind(&[wait.waiter], &self.waiters)
                    .iter()
                    .any(|thread| waits[self.by_waiter[thread]].kind.is_lock())
    }

    /// Whether a holder waits for a lock or a thread: then it is no root. An event's end is nobody's in particular.
    fn waits_itself(&self, waits: &[Wait], thread: usize) -> bool {
        self.by_waiter
            .get(&thread)
            .is_some_and(|wait| !waits[*wait].kind.is_event())
    }
}
