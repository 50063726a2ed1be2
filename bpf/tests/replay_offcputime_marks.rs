//! Calls and returns of a function that calls itself and is left by exceptions: those of the outermost calls are told, in their order.

#[expect(dead_code, reason = "it has more for tests of machines")]
mod host;

use std::ffi::c_void;

use bpf::offcputime::types::told_mark;
use fastrand::Rng;
use host::Host;

type Task = *mut c_void;

const TID: u32 = 2;
const BEGIN_NS: u64 = 1_000;
/// The stack pointer of a thread's first function.
const TOP: u64 = 0x7fff_0000;
struct Played {
    host: Host,
    return_bytes: u64,
    task: Task,
    rng: Rng,
    now: u64,
    /// Stack pointers of calls that have not ended, and whether they are of the function.
    stack: Vec<(u64, bool)>,
    /// Told ones that began and ended a piece, and those at which another call ended it.
    told: Vec<(bool, bool)>,
}

impl Played {
    fn new(host: Host, seed: u64) -> Self {
        host.tell("host_begin", (BEGIN_NS,));
        host.tell("host_ask_calls", ());
        let [parent, task]: [Task; 2] = [1, TID].map(|tid: u32| host.ask("host_thread", (tid,)));
        host.tell("host_set", (BEGIN_NS, 0_u32, parent));
        host.fork(parent, task);
        Self {
            return_bytes: host.ask("host_return_bytes", ()),
            host,
            task,
            rng: Rng::with_seed(seed),
            now: BEGIN_NS,
            stack: Vec::new(),
            told: Vec::new(),
        }
    }

    fn sp(&self) -> u64 {
        self.stack.last().map_or(TOP, |(sp, _)| *sp)
    }

    /// A call of the function, or the return of one; `expected` to be told.
    fn mark(&mut self, sp: u64, is_end: bool, expected: bool) {
        self.now += 1;
        self.host.tell("host_set", (self.now, 0_u32, self.task));
        let mut mark = told_mark::default();
        let sp = sp + if is_end { self.return_bytes } else { 0 };
        let is_told: bool = self.host.ask("host_calls", (sp, is_end, &raw mut mark));
        assert_eq!(
            is_told, expected,
            "{:?}, at {sp:x}, end: {is_end}",
            self.stack
        );
        if is_told {
            assert_eq!(
                (mark.time_ns, mark.tid, mark.is_end),
                (self.now, TID, is_end.into())
            );
            self.told.push((is_end, mark.is_other != 0));
            assert_eq!(mark.number as usize, self.told.len());
        }
    }

    fn is_at_work(&self) -> bool {
        self.stack.iter().any(|(_, is_function)| *is_function)
    }

    fn call(&mut self, is_function: bool) {
        let sp = self.sp() - 16 * self.rng.u64(1..8);
        let expected = !self.is_at_work();
        self.stack.push((sp, is_function));
        if is_function {
            self.mark(sp, false, expected);
        }
    }

    fn come_back(&mut self) {
        if let Some((sp, true)) = self.stack.pop() {
            let expected = !self.is_at_work();
            self.mark(sp, true, expected);
        }
    }

    /// Leaves some calls; where the outermost of the function is among them, its place is called from again.
    fn throw(&mut self) {
        let left = self.rng.usize(..=self.stack.len());
        let outermost = self.stack.iter().position(|(_, is_function)| *is_function);
        let is_outermost_left = outermost.is_some_and(|at| at >= left);
        if let Some(at) = outermost.filter(|_| is_outermost_left) {
            let (sp, _) = self.stack[at];
            self.stack.truncate(left.min(at));
            self.stack.push((sp, true));
            self.mark(sp, false, true);
        } else {
            self.stack.truncate(left);
        }
    }
}

#[test]
fn outermost_calls_are_told() {
    let object = host::compile("offcputime");
    for seed in 0..200 {
        let mut played = Played::new(Host::load(&object), seed);
        for _ in 0..500 {
            match played.rng.u32(..20) {
                0 => played.throw(),
                1..=11 => played.come_back(),
                12..=15 => played.call(false),
                _ => played.call(true),
            }
        }
        let ends = played.told.iter().filter(|(is_end, _)| *is_end);
        assert!(ends.clone().count() > 20, "{seed}");
        assert!(ends.clone().all(|(_, is_other)| !is_other), "{seed}");
    }
}

#[test]
fn a_call_that_was_left_is_over_at_one_no_deeper_or_in_another_memory() {
    let object = host::compile("offcputime");
    let mut played = Played::new(Host::load(&object), 1);
    // One farther out ends, which began before anybody looked.
    played.mark(TOP - 64, false, true);
    played.mark(TOP - 32, true, true);
    assert_eq!(played.told.last(), Some(&(true, true)));
    played.mark(TOP - 64, false, true);
    // Deeper ones may be its own.
    played.mark(TOP - 96, false, false);
    played.mark(TOP - 96, true, false);
    played.mark(TOP - 48, false, true);
    played.mark(TOP - 48, true, true);
    assert_eq!(played.told.last(), Some(&(true, false)));
    played.mark(TOP - 64, false, true);
    played.host.tell("host_exec", (played.task, 77_u64));
    played.mark(TOP - 128, false, true);
    played.mark(TOP - 128, true, true);
    assert_eq!(played.told.last(), Some(&(true, false)));
}
