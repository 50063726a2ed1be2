//! Notes on requests, which are kept until these complete.

use crate::asked::{BEFORE, CGROUP_LEVELS, FIRST_CGROUP, TOTAL};
use crate::endings::{Beginning, Ending};
use crate::machine::{Event, FLUSH, Machine, PASSTHROUGH, Request, TOOL, Thread};
use crate::told::{BEGUN_BEFORE, NEVER_COMPLETED, REQUEUED, STARTED_FULL};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitter {
    Other,
    Wanted,
    Unknown,
}

/// A request by its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) beginning: Beginning,
    pub(crate) before_ns: u64,
    pub(crate) sector: u64,
    pub(crate) bytes: u32,
    /// Flags as submitted.
    pub(crate) opf: u32,
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) submitter: Submitter,
    pub(crate) status: i32,
    is_requeued: bool,
    pub(crate) comm: [u8; 16],
}

impl Note {
    fn new(request: &Request, now: u64) -> Self {
        Self {
            beginning: Beginning {
                start_ns: now,
                issue_ns: 0,
            },
            before_ns: 0,
            sector: 0,
            bytes: 0,
            opf: request.facts.cmd_flags,
            tgid: 0,
            tid: 0,
            submitter: Submitter::Other,
            status: 0,
            is_requeued: false,
            comm: [0; 16],
        }
    }

    /// The device has had it, and has not given it back: what begins now is another request in the same memory.
    fn is_gone(&self, request: &Request) -> bool {
        op(request) == FLUSH || self.beginning.issue_ns > 0 && !self.is_requeued
    }
}

pub(crate) fn op(request: &Request) -> u32 {
    request.facts.cmd_flags & 0xff
}

impl Machine {
    pub(crate) fn is_told(
        &mut self,
        event: Event,
        request: &Request,
        thread: &Thread,
        (error, bytes): (i32, u32),
        (now, whole): (u64, *mut std::ffi::c_void),
    ) {
        let key = request.at as u64;
        let bio = request.facts.bio as u64;
        let known = self.account.notes.get(&key).copied();
        match event {
            Event::Queue => drop(self.account.submitted.insert(bio, now)),
            Event::Split => {
                if let Some(since_ns) = self.account.submitted.get(&(whole as u64)) {
                    let since_ns = *since_ns;
                    self.account.submitted.insert(bio, since_ns);
                }
            }
            Event::Start => self.has_started(request, thread, now),
            Event::Insert => {
                if known.is_none_or(|it| it.is_gone(request)) {
                    self.has_started(request, thread, now);
                }
            }
            Event::Issue => self.has_been_issued(request, thread, now),
            Event::Merge => drop(self.account.notes.remove(&key)),
            Event::Requeue => {
                if let Some(note) = self.account.notes.get_mut(&key) {
                    note.is_requeued = true;
                }
                if self.account.in_window(now)
                    && let Some(dev) = self.wanted(request, true)
                    && let Some(sum) = self.account.sum_of((request.disk, dev))
                {
                    sum[REQUEUED] += 1;
                }
            }
            Event::Complete => self.has_completed(request, (error, bytes), now),
            Event::Done => self.is_done(request, now),
        }
    }

    /// The disk that it counts for, or its partition; None: not asked for.
    pub(crate) fn wanted(&self, request: &Request, asks_cgroup: bool) -> Option<u32> {
        let config = self.asked.config;
        let disk = self.disks[request.disk];
        let has_bio = self.asked.kernel.age >= 512 && !request.facts.bio.is_null();
        let part = match self.asked.kernel.age {
            510 => disk.major,
            _ if has_bio => request.dev,
            _ => request.facts.part,
        };
        let is_chosen = |dev: &u32| config.by_dev == 0 || self.account.wanted_devs.contains(dev);
        let dev = Some(disk.dev)
            .filter(is_chosen)
            .or(Some(part).filter(is_chosen))?;
        let is_below = |at: usize| {
            let level = config.cgroup_id - FIRST_CGROUP;
            level <= at as u64 && level < CGROUP_LEVELS
        };
        let is_in_cgroup = config.cgroup_id == 0 || request.cgroup.is_some_and(is_below);
        (!asks_cgroup || is_in_cgroup).then_some(dev)
    }

    /// Our own stamps serve where the kernel has none, as far as can be told beforehand.
    fn needs_stamp(&self, request: &Request, dev: u32) -> bool {
        if self.asked.config.track > 0 || op(request) >= PASSTHROUGH {
            return true;
        }
        if self.asked.sees_stamps() {
            return !self.disks[request.disk].stats;
        }
        let known = self.account.disks.get(&(request.disk, dev));
        known.and_then(|it| it.needs_stamp).unwrap_or(true)
    }

    fn has_started(&mut self, request: &Request, thread: &Thread, now: u64) {
        let Some(dev) = self.wanted(request, true) else {
            return;
        };
        if !self.needs_stamp(request, dev) {
            return;
        }
        let mut note = Note::new(request, now);
        if self.asked.config.track > 0 {
            self.is_submitted_by(&mut note, thread);
            let bio = request.facts.bio as u64;
            if self.asked.measures(BEFORE)
                && let Some(since_ns) = self.account.submitted.remove(&bio)
            {
                note.before_ns = now.saturating_sub(since_ns);
            }
        }
        self.is_remembered(request, note);
    }

    fn is_submitted_by(&self, note: &mut Note, thread: &Thread) {
        let config = self.asked.config;
        let is_of_kind = match self.asked.mode {
            0 => true,
            1 => !thread.is_kernel,
            _ => thread.is_kernel,
        };
        let is_target = is_of_kind && thread.tgid != TOOL;
        note.submitter = match config.by_submitter {
            1 if !is_target => Submitter::Other,
            _ => Submitter::Wanted,
        };
        (note.tgid, note.tid) = (thread.tgid, thread.tid);
        note.comm[0] = match config.by_process {
            0 => thread.name,
            _ => thread.leader_name,
        };
    }

    fn is_remembered(&mut self, request: &Request, note: Note) {
        let key = request.at as u64;
        let account = &mut self.account;
        let last = account.notes.get(&key);
        let is_lost = last.is_some_and(|last| {
            let issue_ns = last.beginning.issue_ns;
            let is_in_device = issue_ns > 0 && !last.is_requeued;
            is_in_device && issue_ns >= account.window.0 && last.submitter != Submitter::Other
        });
        if self.asked.config.track > 0 && is_lost {
            account.lost[NEVER_COMPLETED] += 1;
        }
        if account.is_full && last.is_none() {
            account.lost[STARTED_FULL] += 1;
            return;
        }
        account.notes.insert(key, note);
    }

    fn has_been_issued(&mut self, request: &Request, thread: &Thread, now: u64) {
        let wanted = self.wanted(request, true);
        if wanted.is_none_or(|dev| !self.needs_stamp(request, dev)) {
            return;
        }
        let known = self.account.notes.get_mut(&(request.at as u64));
        if let Some(note) = known.filter(|it| !it.is_gone(request)) {
            note.beginning.issue_ns = now;
            note.is_requeued = false;
            if note.bytes == 0 {
                (note.bytes, note.sector) = (request.facts.bytes, request.facts.sector);
            }
            return;
        }
        let mut note = Note::new(request, now);
        note.beginning.issue_ns = now;
        (note.bytes, note.sector) = (request.facts.bytes, request.facts.sector);
        let config = self.asked.config;
        if config.track > 0 && op(request) != FLUSH {
            match (config.has_start, config.by_submitter) {
                (0, _) => self.is_submitted_by(&mut note, thread),
                (_, 0) => note.submitter = Submitter::Wanted,
                _ => note.submitter = Submitter::Unknown,
            }
        }
        self.is_remembered(request, note);
    }

    /// Stamps of the kernel's first.
    pub(crate) fn find_beginning(&self, ending: &mut Ending, has_device_part: bool) {
        let request = &ending.request;
        let is_stamped = request.is_accounted || op(request) == FLUSH || {
            // Newer kernels say so, and leave what was there.
            self.asked.kernel.flags.io_stat == 0
        };
        let kernels = Beginning {
            start_ns: if is_stamped {
                request.facts.start_ns
            } else {
                0
            },
            issue_ns: request.facts.issue_ns,
        };
        ending.beginning = kernels;
        let lacks_start = kernels.start_ns == 0 && self.asked.measures(TOTAL);
        let lacks_issue = kernels.issue_ns == 0 && has_device_part;
        if self.asked.config.track == 0 && !lacks_start && !lacks_issue {
            return;
        }
        ending.note = self.account.notes.get(&(request.at as u64)).copied();
        if let Some(Note { beginning, .. }) = ending.note {
            if kernels.start_ns == 0 {
                ending.beginning.start_ns = beginning.start_ns;
            }
            if kernels.issue_ns == 0 {
                ending.beginning.issue_ns = beginning.issue_ns;
            }
        }
    }

    pub(crate) fn begins_before(&mut self, start_ns: u64) {
        if start_ns < self.account.window.0 {
            self.account.lost[BEGUN_BEFORE] += 1;
        }
    }
}
