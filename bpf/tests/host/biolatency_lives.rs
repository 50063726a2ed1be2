//! The lives of requests, as kernels lead them.

use std::ptr;

use crate::asked::CGROUPS;
use crate::machine::{
    APPEND, DISCARD, Disk, Event, FLUSH, Machine, PASSTHROUGH, Pointer, READ, REQUESTS, Stage,
    WRITE,
};

const PREFLUSH: u32 = 1 << 18;
const SYNC: u32 = 1 << 11;

impl Machine {
    pub(crate) fn step(&mut self) {
        let at = self.rng.usize(0..REQUESTS);
        let draw = self.rng.u32(0..20);
        match self.requests[at].stage {
            Stage::Free => self.begins(at),
            Stage::Begun => self.goes_on(at, draw),
            Stage::Issued if draw < 3 => {
                self.requests[at].stage = Stage::Requeued;
                self.requests[at].facts.issue_ns = 0;
                self.happens(Event::Requeue, at);
            }
            Stage::Issued if draw < 6 && self.requests[at].facts.bytes > 4_096 => {
                self.completes(at, 4_096);
                self.requests[at].facts.bytes -= 4_096;
                self.requests[at].facts.sector += 8;
            }
            Stage::Issued => self.ends(at, draw),
            Stage::Requeued if draw == 0 => self.requests[at].stage = Stage::Free,
            Stage::Requeued if draw < 8 => self.happens(Event::Insert, at),
            Stage::Requeued => self.is_issued(at),
            Stage::Inside => {
                self.requests[at].facts.rq_flags &= !self.asked.kernel.flags.flush_seq;
                self.requests[at].facts.bytes = 0;
                self.ends(at, draw);
            }
        }
    }

    fn begins(&mut self, at: usize) {
        let disk = self.rng.usize(0..self.disks.len());
        let ops = [
            READ,
            READ,
            WRITE,
            WRITE,
            FLUSH,
            DISCARD,
            APPEND,
            9,
            13,
            PASSTHROUGH,
            35,
        ];
        let op = self.rng.choice(ops).expect("some");
        let cgroup = self.rng.usize(0..CGROUPS);
        let Disk {
            at: on,
            dev,
            iostats,
            ..
        } = self.disks[disk];
        let request = &mut self.requests[at];
        request.stage = Stage::Begun;
        request.disk = disk;
        request.is_accounted = iostats && op < PASSTHROUGH && op != FLUSH;
        request.facts.disk = on;
        request.facts.issue_ns = 0;
        request.facts.cmd_flags = op;
        request.facts.sector = self.now;
        if op == FLUSH {
            self.flush_begins(at);
            return;
        }
        request.dev = dev | self.rng.u32(0..3);
        request.cgroup = Some(cgroup);
        request.facts.rq_flags = 0;
        request.facts.bytes = 4_096 * self.rng.u32(1..5);
        self.has_flags(at);
        self.is_submitted(at);
        self.passes(3_000);
        self.starts(at);
    }

    fn has_flags(&mut self, at: usize) {
        let flush_seq = self.asked.kernel.flags.flush_seq;
        let is_append = self.asked.kernel.age >= 600 && self.requests[at].facts.cmd_flags == APPEND;
        let facts = &mut self.requests[at].facts;
        let is_write = facts.cmd_flags == WRITE || is_append;
        if self.rng.bool() {
            facts.cmd_flags |= SYNC;
        }
        match self.rng.u32(0..8) {
            0 if is_write => {
                facts.cmd_flags |= PREFLUSH;
                facts.rq_flags |= flush_seq;
            }
            // A write of nothing is done when the flush is.
            1 if is_write => {
                facts.cmd_flags |= PREFLUSH;
                facts.bytes = 0;
            }
            _ => {}
        }
    }

    fn starts(&mut self, at: usize) {
        let has_alloc_time = self.asked.kernel.has_alloc_time && self.rng.u32(0..4) > 0;
        // The kernel's clock is read once for several requests.
        let (start_ns, waited_ns) = (self.now - self.rng.u64(0..100), self.rng.u64(0..1_500));
        let flags = self.asked.kernel.flags;
        let request = &mut self.requests[at];
        let is_late = has_alloc_time && waited_ns < 200;
        request.facts.alloc_ns = match has_alloc_time {
            true if is_late => start_ns + waited_ns,
            true => start_ns.saturating_sub(waited_ns),
            false => 0,
        };
        if request.is_accounted {
            request.facts.start_ns = start_ns;
            request.facts.rq_flags |= flags.io_stat;
        } else if flags.io_stat == 0 {
            request.facts.start_ns = 0;
        }
        request.facts.part = 0;
        // Some are not to be seen.
        if self.rng.u32(0..20) > 0 {
            self.happens(Event::Start, at);
        }
        if self.requests[at].is_accounted {
            self.requests[at].facts.part = self.requests[at].dev;
        }
    }

    /// It has no start, and may have a stamp.
    fn flush_begins(&mut self, at: usize) {
        let stamp_ns = if self.rng.bool() { self.now } else { 0 };
        let in_cgroups = self.asked.config.by_cgroup > 0 || self.asked.config.cgroup_id > 0;
        let flush_seq = self.asked.kernel.flags.flush_seq;
        let request = &mut self.requests[at];
        request.dev = 0;
        request.cgroup = None;
        request.facts.rq_flags = flush_seq;
        request.facts.bytes = 0;
        request.facts.start_ns = stamp_ns;
        request.facts.alloc_ns = 0;
        request.facts.part = 0;
        request.facts.bio = ptr::null_mut();
        if in_cgroups {
            request.facts.bio = request.bios[1];
            self.dress_bio(at, 1, ptr::null_mut());
        }
    }

    fn dress_bio(&self, at: usize, which: usize, whole: Pointer) {
        let request = &self.requests[at];
        let cgroup = request.cgroup.map_or(self.nobody, |at| self.cgroups[at]);
        let dress = (request.bios[which], request.dev, cgroup, whole);
        self.host.tell("host_dress_bio", dress);
    }

    /// Its bio waits for a request; a part of it may go on alone.
    fn is_submitted(&mut self, at: usize) {
        let whole = self.requests[at].bios[0];
        self.requests[at].facts.bio = whole;
        self.dress_bio(at, 0, ptr::null_mut());
        if !std::mem::take(&mut self.requests[at].has_rest) && self.rng.u32(0..8) > 0 {
            self.happens(Event::Queue, at);
        }
        self.passes(2_000);
        if self.rng.u32(0..5) == 0 {
            self.requests[at].facts.bio = self.requests[at].bios[1];
            self.requests[at].has_rest = true;
            self.dress_bio(at, 1, whole);
            self.happens(Event::Split, at);
        }
    }

    fn goes_on(&mut self, at: usize, draw: u32) {
        let op = self.requests[at].facts.cmd_flags & 0xff;
        let is_nothing = [WRITE, APPEND].contains(&op) && self.requests[at].facts.bytes == 0;
        match draw {
            _ if is_nothing => self.ends(at, draw),
            0 if op != FLUSH => {
                self.happens(Event::Merge, at);
                self.requests[at].stage = Stage::Free;
            }
            1 if op < PASSTHROUGH && op != FLUSH => self.requests[at].facts.bytes += 4_096,
            2..8 if op != FLUSH => self.happens(Event::Insert, at),
            _ => self.is_issued(at),
        }
    }

    fn is_issued(&mut self, at: usize) {
        let behind_ns = self.rng.u64(0..200);
        let request = &mut self.requests[at];
        if self.disks[request.disk].stats && request.facts.cmd_flags & 0xff < PASSTHROUGH {
            request.facts.issue_ns = self.now - behind_ns;
        }
        request.stage = Stage::Issued;
        self.happens(Event::Issue, at);
        self.requests[at].facts.cmd_flags &= !PREFLUSH;
    }

    /// The end may be hidden.
    fn ends(&mut self, at: usize, draw: u32) {
        let is_inside = self.requests[at].facts.rq_flags & self.asked.kernel.flags.flush_seq > 0
            && self.requests[at].facts.cmd_flags & 0xff != FLUSH;
        let is_hidden = draw == 19 && self.rng.u32(0..4) == 0;
        if !is_hidden {
            self.completes(at, self.requests[at].facts.bytes);
        }
        if is_inside {
            self.requests[at].stage = Stage::Inside;
            return;
        }
        if !is_hidden && self.asked.attached.done {
            self.now += self.rng.u64(0..300);
            self.requests[at].facts.bio = ptr::null_mut();
            self.happens(Event::Done, at);
        }
        self.requests[at].stage = Stage::Free;
    }

    fn completes(&mut self, at: usize, bytes: u32) {
        let error = match self.rng.u32(0..12) {
            0 => 10,
            1 => -5,
            _ => 0,
        };
        let facts = self.requests[at].facts;
        let limit_ns = facts.issue_ns.max(facts.start_ns) + self.asked.config.slower_ns;
        let now = match self.rng.u32(0..40) {
            // Clocks of CPUs may differ.
            0 => self.now.saturating_sub(self.rng.u64(0..8_000)),
            1 if facts.issue_ns > 0 => facts.issue_ns,
            2 if facts.start_ns > 0 => facts.start_ns,
            3 if limit_ns > self.now => limit_ns,
            _ => self.now,
        };
        self.now = self.now.max(now);
        self.happens_at(Event::Complete, at, (error, bytes), now);
    }
}
