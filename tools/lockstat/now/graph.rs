//! Who waits for whom: cycles, threads that nobody is left to release, and how many stand behind each.

use std::collections::{HashMap, HashSet};

use profile::sums::groups;

/// Who can end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Releaser {
    /// This thread, and nobody else.
    Thread(usize),
    /// Probably this one.
    Perhaps(usize),
    /// Nobody any more.
    Nobody,
    /// Some other thread of this process.
    AnyOf(u32),
    /// Anybody, or time.
    Unknown,
}

/// A wait, reduced to what decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) waiter: usize,
    pub(crate) releaser: Releaser,
    /// It ends by itself: it keeps nobody for ever.
    pub(crate) timed: bool,
}

/// Threads, their processes and their waits.
pub(crate) struct Graph<'a> {
    edges: &'a [Edge],
    /// Process of each thread.
    groups: &'a [u32],
    by_waiter: HashMap<usize, Edge>,
}

impl<'a> Graph<'a> {
    /// `groups`: the process of each thread; those that are dead have none.
    pub(crate) fn new(edges: &'a [Edge], groups: &'a [u32]) -> Self {
        Self {
            edges,
            groups,
            by_waiter: edges.iter().map(|edge| (edge.waiter, *edge)).collect(),
        }
    }

    /// Whom a thread waits for, if that is known.
    pub(crate) fn next(&self, thread: usize) -> Option<usize> {
        match self.by_waiter.get(&thread)?.releaser {
            Releaser::Thread(next) | Releaser::Perhaps(next) => Some(next),
            _ => None,
        }
    }

    /// Threads that wait in a circle, each circle from its lowest thread on, in the order of waiting.
    pub(crate) fn cycles(&self) -> Vec<Vec<usize>> {
        let mut settled = HashSet::new();
        let mut cycles = Vec::new();
        for edge in self.edges {
            let mut path = Vec::new();
            let mut at = edge.waiter;
            while settled.insert(at) {
                path.push(at);
                match self.next(at) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            // Back on this very path: a circle. On an older one, or at an end: none.
            if let Some(start) = path.iter().position(|thread| *thread == at)
                && self.next(path[path.len() - 1]) == Some(at)
            {
                let mut cycle = path.split_off(start);
                let lowest = (0..cycle.len())
                    .min_by_key(|i| cycle[*i])
                    .unwrap_or_default();
                cycle.rotate_left(lowest);
                cycles.push(cycle);
            }
        }
        cycles.sort();
        cycles
    }

    /// Threads that no thread is left to release: the largest set of waiters each of whose possible releasers is in it.
    pub(crate) fn stuck(&self) -> HashSet<usize> {
        let possible = |edge: &&Edge| {
            !edge.timed && !matches!(edge.releaser, Releaser::Unknown | Releaser::Perhaps(_))
        };
        let mut stuck: HashSet<usize> = self
            .edges
            .iter()
            .filter(possible)
            .map(|edge| edge.waiter)
            .collect();
        loop {
            let groups = self.groups.iter().enumerate();
            let live = groups.filter(|(thread, _)| !stuck.contains(thread));
            let live: HashSet<u32> = live.map(|(_, group)| *group).collect();
            let released = |waiter: &usize| match self.by_waiter[waiter].releaser {
                Releaser::Thread(thread) => !stuck.contains(&thread),
                Releaser::AnyOf(group) => live.contains(&group),
                _ => false,
            };
            let released: Vec<usize> = stuck.iter().copied().filter(released).collect();
            if released.is_empty() {
                return stuck;
            }
            for thread in released {
                stuck.remove(&thread);
            }
        }
    }

    /// For each thread: who waits for it directly.
    pub(crate) fn waiters(&self) -> HashMap<usize, Vec<usize>> {
        let edges = self.edges.iter();
        groups(edges.filter_map(|edge| Some((self.next(edge.waiter)?, edge.waiter))))
    }
}

/// Everybody behind `roots`, themselves left out.
pub(crate) fn behind(roots: &[usize], waiters: &HashMap<usize, Vec<usize>>) -> Vec<usize> {
    let mut seen: HashSet<usize> = roots.iter().copied().collect();
    let mut open = roots.to_vec();
    let mut found = Vec::new();
    while let Some(at) = open.pop() {
        for &waiter in waiters.get(&at).into_iter().flatten() {
            if seen.insert(waiter) {
                found.push(waiter);
                open.push(waiter);
            }
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(waiter: usize, releaser: Releaser) -> Edge {
        Edge {
            waiter,
            releaser,
            timed: false,
        }
    }

    fn to(waiter: usize, holder: usize) -> Edge {
        edge(waiter, Releaser::Thread(holder))
    }

    fn sorted(set: HashSet<usize>) -> Vec<usize> {
        let mut all: Vec<usize> = set.into_iter().collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn circles_are_found_and_tails_are_not_part_of_them() {
        // 5 → 1 → 2 → 3 → 1, 4 → 4, 6 → 7.
        let edges = [to(5, 1), to(1, 2), to(2, 3), to(3, 1), to(4, 4), to(6, 7)];
        let graph = Graph::new(&edges, &[1; 8]);
        assert_eq!(graph.cycles(), [vec![1, 2, 3], vec![4]]);
        assert_eq!(sorted(graph.stuck()), [1, 2, 3, 4, 5]);
        assert_eq!(behind(&[1, 2, 3], &graph.waiters()), [5]);
        assert_eq!(behind(&[7], &graph.waiters()), [6]);
    }

    #[test]
    fn a_time_out_ends_what_would_be_a_deadlock() {
        let timed = Edge {
            timed: true,
            ..to(2, 1)
        };
        let edges = [to(1, 2), timed];
        let graph = Graph::new(&edges, &[1; 3]);
        assert_eq!(graph.cycles(), [vec![1, 2]]);
        assert!(graph.stuck().is_empty());
    }

    #[test]
    fn a_process_whose_threads_all_wait_has_nobody_to_release_them() {
        let any = |waiter| edge(waiter, Releaser::AnyOf(7));
        // Thread 0 joins 1; 1 and 2 wait for locks that name nobody.
        let edges = [to(0, 1), any(1), any(2)];
        assert_eq!(sorted(Graph::new(&edges, &[7, 7, 7]).stuck()), [0, 1, 2]);
        // One more thread that does anything else may have the locks.
        assert!(Graph::new(&edges, &[7, 7, 7, 7]).stuck().is_empty());
        // Another process's thread cannot.
        assert_eq!(Graph::new(&edges, &[7, 7, 7, 8]).stuck().len(), 3);
        // Nor can one that may be released by anybody keep them.
        let edges = [to(0, 1), any(1), edge(2, Releaser::Unknown)];
        assert!(Graph::new(&edges, &[7, 7, 7]).stuck().is_empty());
    }

    #[test]
    fn the_dead_release_nothing() {
        let edges = [edge(1, Releaser::Nobody), to(2, 1)];
        let graph = Graph::new(&edges, &[7; 4]);
        assert_eq!(sorted(graph.stuck()), [1, 2]);
        assert!(graph.cycles().is_empty());
    }
}
