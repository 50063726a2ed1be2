//! Sums of requests, as they should be when these complete.

use crate::asked::{BEFORE, DEVICE, FIRST_CGROUP, QUEUED, TOTAL};
use crate::host::buckets::bucket;
use crate::machine::{APPEND, DISCARD, FLUSH, Machine, PASSTHROUGH, Request, WRITE};
use crate::requests::{Note, Submitter, op};
use crate::told::{
    BUCKETS_FULL, BUSY_NS, BYTES, DISKS_FULL, GROUPS_FULL, Group, NEGATIVE, PARTIAL, RING_FULL,
    Slow, Sum, TOTAL_NS, UNATTRIBUTED, UNSTAMPED,
};

/// Flushes are several processes' at once.
const EVERYBODY: u32 = u32::MAX;
const FLUSH_CLASS: usize = 3;
/// Bits of the operation, apart from its flags.
const OPERATION: u32 = 0xff;

/// 0: not known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beginning {
    pub(crate) start_ns: u64,
    pub(crate) issue_ns: u64,
}

impl Beginning {
    fn queued_ns(self) -> u64 {
        match self.start_ns {
            0 => 0,
            start_ns => self.issue_ns.saturating_sub(start_ns),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) request: Request,
    pub(crate) note: Option<Note>,
    pub(crate) beginning: Beginning,
    pub(crate) now: u64,
    dev: u32,
    status: i32,
    class: usize,
}

impl Machine {
    fn ending(&self, request: &Request, status: i32, dev: u32, now: u64) -> Ending {
        Ending {
            request: *request,
            note: None,
            beginning: Beginning::default(),
            now,
            dev,
            status,
            class: match op(request) {
                PASSTHROUGH.. => 4,
                FLUSH => FLUSH_CLASS,
                DISCARD => 2,
                other => (other & 1) as usize,
            },
        }
    }

    /// The kernel tells of its own account of such a request, which ends its time.
    fn ends_at_done(&self, request: &Request) -> bool {
        let is_stamped = match self.asked.kernel.flags.io_stat {
            0 => request.facts.start_ns > 0,
            _ => request.is_accounted && request.facts.start_ns > 0,
        };
        self.asked.config.total_at_done > 0
            && is_stamped
            && op(request) < PASSTHROUGH
            && op(request) != FLUSH
    }

    pub(crate) fn has_completed(
        &mut self,
        request: &Request,
        (status, bytes): (i32, u32),
        now: u64,
    ) {
        let flush_seq = self.asked.kernel.flags.flush_seq;
        let is_inside = request.facts.rq_flags & flush_seq > 0 && op(request) != FLUSH;
        let is_append = op(request) == APPEND && self.asked.kernel.age >= 600;
        let is_whole = request.facts.bytes == 0 && (op(request) == WRITE || is_append);
        let has_device_part = is_inside || !is_whole;
        let is_last = bytes >= request.facts.bytes;
        let mut ending = self.ending(request, status, 0, now);
        if self.account.in_window(now)
            && let Some(dev) = self.wanted(request, true)
        {
            ending.dev = dev;
            self.find_beginning(&mut ending, has_device_part);
            self.learn(&ending, has_device_part);
            if self.is_submitter_wanted(&ending) {
                self.is_counted(&ending, (bytes, is_last), is_inside, has_device_part);
            }
        }
        let is_over = is_last && !is_inside && !self.ends_at_done(request);
        if is_over && (self.asked.config.track > 0 || ending.note.is_some()) {
            self.account.notes.remove(&(request.at as u64));
        }
    }

    /// Completions tell what the kernel stamps where nothing else does.
    fn learn(&mut self, ending: &Ending, has_device_part: bool) {
        let is_telling = has_device_part && ending.class < FLUSH_CLASS;
        if self.asked.config.track > 0 || self.asked.sees_stamps() || !is_telling {
            return;
        }
        let facts = ending.request.facts;
        let needs_stamp = match self.asked.measures(TOTAL) {
            true if self.asked.kernel.flags.io_stat > 0 => !ending.request.is_accounted,
            true => facts.start_ns == 0,
            false => facts.issue_ns == 0,
        };
        if let Some(disk) = self.account.know((ending.request.disk, ending.dev)) {
            disk.needs_stamp = Some(needs_stamp);
        }
    }

    fn is_submitter_wanted(&mut self, ending: &Ending) -> bool {
        if self.asked.config.by_submitter == 0 {
            return true;
        }
        match ending.note.map(|it| it.submitter) {
            Some(Submitter::Wanted) => true,
            Some(Submitter::Other) => false,
            _ => {
                let is_in_window = ending.beginning.start_ns >= self.account.window.0;
                let is_loss = is_in_window && ending.class != FLUSH_CLASS;
                self.account.lost[UNATTRIBUTED] += u64::from(is_loss);
                false
            }
        }
    }

    fn is_counted(
        &mut self,
        ending: &Ending,
        (bytes, is_last): (u32, bool),
        is_inside: bool,
        has_device_part: bool,
    ) {
        let disk = (ending.request.disk, ending.dev);
        let Some(sum) = self.account.sum_of(disk) else {
            return;
        };
        sum[BYTES + ending.class] += u64::from(bytes);
        if !is_last {
            sum[PARTIAL] += 1;
        }
        if ending.status != 0 && !is_inside {
            self.has_failed(ending);
        }
        if is_last && has_device_part {
            self.device_is_done(ending);
        }
        if !is_last || is_inside {
            return;
        }
        if let Some(sum) = self.account.sum_of(disk) {
            sum[ending.class] += 1;
        }
        if let Some(note) = self.account.notes.get_mut(&(ending.request.at as u64))
            && ending.note.is_some()
        {
            note.status = ending.status;
        }
        if !self.ends_at_done(&ending.request) {
            self.all_is_done(ending);
        }
    }

    fn has_failed(&mut self, ending: &Ending) {
        let key = Group {
            disk: self.disks[ending.request.disk].at as u64,
            dev: ending.dev,
            tgid: ending.status as u32,
            phase: ending.class as u32,
            half: self.account.half,
            ..Group::default()
        };
        let errors = &mut self.account.tables.errors;
        if self.account.is_full && !errors.contains_key(&key) {
            self.account.lost[DISKS_FULL] += 1;
        } else {
            *errors.entry(key).or_default() += 1;
        }
    }

    fn device_is_done(&mut self, ending: &Ending) {
        let Beginning { start_ns, issue_ns } = ending.beginning;
        let is_measured = [DEVICE, QUEUED, BEFORE]
            .iter()
            .any(|phase| self.asked.measures(*phase));
        if !is_measured && self.asked.config.track == 0 {
            return;
        }
        if issue_ns == 0 || ending.now < issue_ns {
            let why = if issue_ns == 0 { UNSTAMPED } else { NEGATIVE };
            self.account.lost[why] += 1;
            return;
        }
        self.took(ending, DEVICE, ending.now - issue_ns);
        if start_ns > 0 {
            self.took(ending, QUEUED, ending.beginning.queued_ns());
        }
        let alloc_ns = ending.request.facts.alloc_ns;
        if start_ns > 0 && alloc_ns > 0 && alloc_ns <= start_ns {
            self.took(ending, BEFORE, start_ns - alloc_ns);
        } else if let Some(note) = ending.note.filter(|it| it.before_ns > 0) {
            self.took(ending, BEFORE, note.before_ns);
        }
    }

    fn all_is_done(&mut self, ending: &Ending) {
        let start_ns = ending.beginning.start_ns;
        if start_ns == 0 || ending.now < start_ns {
            if self.asked.measures(TOTAL) {
                let why = if start_ns == 0 { UNSTAMPED } else { NEGATIVE };
                self.account.lost[why] += 1;
            }
            return;
        }
        let (disk, now) = ((ending.request.disk, ending.dev), ending.now);
        let begin_ns = self.account.window.0;
        let known = self.account.disks.get_mut(&disk);
        let busy_ns = known.map_or(0, |known| {
            let from_ns = start_ns.max(known.busy_until_ns).max(begin_ns);
            known.busy_until_ns = known.busy_until_ns.max(if now > from_ns { now } else { 0 });
            now.saturating_sub(from_ns)
        });
        if let Some(sum) = self.account.sum_of(disk) {
            sum[TOTAL_NS + ending.class] += now - start_ns;
            sum[BUSY_NS] += busy_ns;
        }
        self.begins_before(start_ns);
        self.took(ending, TOTAL, now - start_ns);
    }

    pub(crate) fn is_done(&mut self, request: &Request, now: u64) {
        let flush_seq = self.asked.kernel.flags.flush_seq;
        let is_inside = request.facts.rq_flags & flush_seq > 0 && op(request) != FLUSH;
        if is_inside || !self.ends_at_done(request) {
            return;
        }
        if self.account.in_window(now)
            && let Some(dev) = self.wanted(request, false)
        {
            let mut ending = self.ending(request, 0, dev, now);
            self.find_beginning(&mut ending, false);
            let note = ending.note;
            ending.status = note.map_or(0, |it| it.status);
            let is_wanted = note.is_some_and(|it| it.submitter == Submitter::Wanted);
            let has_room = self.account.sum_of((request.disk, dev)).is_some();
            if has_room && (self.asked.config.by_submitter == 0 || is_wanted) {
                self.all_is_done(&ending);
            }
        }
        if self.asked.config.track > 0 {
            self.account.notes.remove(&(request.at as u64));
        }
    }

    /// It took so long in that phase.
    fn took(&mut self, ending: &Ending, phase: u32, ns: u64) {
        self.may_be_slow(ending, phase, ns);
        if !self.asked.measures(phase) {
            return;
        }
        let key = self.group(ending, phase);
        let account = &mut self.account;
        let groups = &mut account.tables.groups;
        if account.is_full && !groups.contains_key(&key) {
            account.lost[GROUPS_FULL] += 1;
            return;
        }
        let named = ending.note.filter(|_| self.asked.config.by_process > 0);
        let sum = groups.entry(key).or_insert_with(|| Sum {
            comm: named.map_or([0; 16], |it| it.comm),
            ..Sum::default()
        });
        sum.add(ns);
        let key = Group {
            bucket: bucket(ns),
            ..key
        };
        let buckets = &mut account.tables.buckets;
        if account.is_full && !buckets.contains_key(&key) {
            account.lost[BUCKETS_FULL] += 1;
        } else {
            *buckets.entry(key).or_default() += 1;
        }
    }

    fn opf(ending: &Ending) -> u32 {
        ending
            .note
            .map_or(ending.request.facts.cmd_flags, |it| it.opf)
    }

    fn group(&self, ending: &Ending, phase: u32) -> Group {
        let config = self.asked.config;
        let process = match ending.class {
            FLUSH_CLASS => EVERYBODY,
            _ => ending.note.map_or(0, |it| it.tgid),
        };
        let cgroup = ending
            .request
            .cgroup
            .map_or(0, |at| FIRST_CGROUP + at as u64);
        Group {
            disk: u64::from(config.by_disk) * self.disks[ending.request.disk].at as u64,
            dev: config.by_disk * ending.dev,
            cgroup: u64::from(config.by_cgroup) * cgroup,
            opf: match config.by_flags {
                0 => Self::opf(ending) & OPERATION,
                _ => Self::opf(ending),
            },
            tgid: config.by_process * process,
            phase,
            half: self.account.half,
            bucket: 0,
        }
    }

    fn may_be_slow(&mut self, ending: &Ending, phase: u32, ns: u64) {
        let config = self.asked.config;
        if config.slower_ns == 0 || phase != config.slower_phase.0 || ns < config.slower_ns {
            return;
        }
        if self.account.is_ring_full {
            self.account.lost[RING_FULL] += 1;
            return;
        }
        let Beginning { start_ns, issue_ns } = ending.beginning;
        let since = |ns: u64| {
            if ns > 0 {
                ending.now.wrapping_sub(ns)
            } else {
                0
            }
        };
        let facts = ending.request.facts;
        let note = ending.note;
        self.account.slow = Some(Slow {
            time_ns: ending.now,
            disk: self.disks[ending.request.disk].at as u64,
            before_ns: note.map_or(0, |it| it.before_ns),
            queued_ns: ending.beginning.queued_ns(),
            device_ns: since(issue_ns),
            total_ns: since(start_ns),
            sector: note.map_or(facts.sector, |it| it.sector),
            dev: ending.dev,
            bytes: note.map_or(facts.bytes, |it| it.bytes),
            opf: Self::opf(ending),
            status: ending.status,
            tgid: note.map_or(0, |it| it.tgid),
            tid: note.map_or(0, |it| it.tid),
            comm: note.map_or([0; 16], |it| it.comm),
        });
    }
}
