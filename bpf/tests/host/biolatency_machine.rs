//! Disks, threads and requests: what the kernel has, and tells of.

use std::ffi::c_void;
use std::ptr;

use fastrand::Rng;

use crate::account::Account;
use crate::asked::{Asked, CGROUPS, FIRST_CGROUP};
use crate::host::Host;

pub(crate) type Pointer = *mut c_void;

pub(crate) const READ: u32 = 0;
pub(crate) const WRITE: u32 = 1;
pub(crate) const FLUSH: u32 = 2;
pub(crate) const DISCARD: u32 = 3;
/// An append to a zone since 6.0; some other operation before.
pub(crate) const APPEND: u32 = 7;
/// Commands of drivers begin here.
pub(crate) const PASSTHROUGH: u32 = 32;

const CPUS: u32 = 8;
pub(crate) const REQUESTS: usize = 24;
pub(crate) const KTHREAD: u32 = 0x0020_0000;
pub(crate) const TOOL: u32 = 11;

/// `enum host_event` of host/biolatency.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Event {
    Start,
    Insert,
    Issue,
    Merge,
    Requeue,
    Queue,
    Split,
    Complete,
    Done,
}

/// `struct host_facts` of host/biolatency.c.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Facts {
    pub(crate) disk: Pointer,
    pub(crate) bio: Pointer,
    pub(crate) sector: u64,
    pub(crate) alloc_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) issue_ns: u64,
    pub(crate) cmd_flags: u32,
    pub(crate) rq_flags: u32,
    pub(crate) bytes: u32,
    pub(crate) part: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    pub(crate) at: Pointer,
    pub(crate) major: u32,
    pub(crate) dev: u32,
    pub(crate) name: u8,
    /// The kernel stamps starts.
    pub(crate) iostats: bool,
    /// The kernel stamps issues.
    pub(crate) stats: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    task: Pointer,
    pub(crate) tid: u32,
    pub(crate) tgid: u32,
    pub(crate) is_kernel: bool,
    pub(crate) name: u8,
    pub(crate) leader_name: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Free,
    Begun,
    Issued,
    Requeued,
    /// Its data are written, and the flush behind them is not done.
    Inside,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) at: Pointer,
    pub(crate) facts: Facts,
    pub(crate) disk: usize,
    /// Device of its bio.
    pub(crate) dev: u32,
    /// A place in the cgroups; none is nobody's.
    pub(crate) cgroup: Option<usize>,
    pub(crate) is_accounted: bool,
    pub(crate) bios: [Pointer; 2],
    /// The rest of what was split waits for a request.
    pub(crate) has_rest: bool,
    pub(crate) stage: Stage,
}

impl Request {
    fn free(at: Pointer, bios: [Pointer; 2], disk: Pointer) -> Self {
        Self {
            at,
            facts: Facts {
                disk,
                bio: ptr::null_mut(),
                sector: 0,
                alloc_ns: 0,
                start_ns: 0,
                issue_ns: 0,
                cmd_flags: 0,
                rq_flags: 0,
                bytes: 0,
                part: 0,
            },
            disk: 0,
            dev: 0,
            cgroup: None,
            is_accounted: false,
            bios,
            has_rest: false,
            stage: Stage::Free,
        }
    }
}

pub(crate) struct Machine {
    pub(crate) host: Host,
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    is_still: bool,
    pub(crate) asked: Asked,
    pub(crate) disks: Vec<Disk>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) requests: Vec<Request>,
    pub(crate) cgroups: Vec<Pointer>,
    pub(crate) nobody: Pointer,
    pub(crate) account: Account,
}

impl Machine {
    pub(crate) fn new(host: Host, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let asked = Asked::drawn(&mut rng);
        asked.tell(&host, TOOL);
        let cgroup = |above: Pointer, id: u64| host.ask::<Pointer>("host_cgroup", (above, id));
        let mut above = ptr::null_mut();
        let cgroups = (FIRST_CGROUP..).take(CGROUPS).map(|id| {
            above = cgroup(above, id);
            above
        });
        let (cgroups, nobody) = (cgroups.collect(), cgroup(ptr::null_mut(), 0));
        let mut machine = Self {
            host,
            rng,
            now: 1_000,
            is_still: false,
            asked,
            disks: Vec::new(),
            threads: Vec::new(),
            requests: Vec::new(),
            cgroups,
            nobody,
            account: Account::default(),
        };
        machine.populate();
        machine
    }

    fn populate(&mut self) {
        for (major, minor, name) in [(8, 0, b'a'), (8, 16, b'b'), (259, 0, b'n')] {
            self.disks.push(Disk {
                at: self.host.ask("host_disk", (major, minor, name)),
                major,
                dev: major << 20 | minor,
                name,
                iostats: self.rng.bool(),
                stats: self.rng.bool(),
            });
        }
        for (tid, flags, leader) in [
            (TOOL, 0, 0),
            (20, 0, 1),
            (21, 0, 1),
            (30, KTHREAD, 3),
            (40, 0, 4),
        ] {
            let name = b'A' + tid as u8 - 11;
            let first: Option<Thread> = self.threads.get(leader).copied();
            let above = first.map_or(ptr::null_mut(), |it| it.task);
            self.threads.push(Thread {
                task: self.host.ask("host_thread", (tid, flags, above, name)),
                tid,
                tgid: first.map_or(tid, |it| it.tid),
                is_kernel: flags > 0,
                name,
                leader_name: first.map_or(name, |it| it.name),
            });
        }
        for _ in 0..REQUESTS {
            let at = self.host.ask("host_request", ());
            let bios = [(); 2].map(|()| self.host.ask("host_bio", ()));
            self.requests
                .push(Request::free(at, bios, self.disks[0].at));
        }
        if self.asked.config.by_dev > 0 {
            self.choose_devs();
        }
    }

    /// A disk, and a partition of another one.
    fn choose_devs(&mut self) {
        let part = if self.asked.kernel.age < 511 {
            259
        } else {
            self.disks[2].dev | 1
        };
        for dev in [self.disks[0].dev, part] {
            self.host.tell("host_want", (dev,));
            self.account.wanted_devs.push(dev);
        }
    }

    fn tell_window(&self) {
        let (start_ns, end_ns) = self.account.window;
        let window = (start_ns, end_ns, self.account.half);
        self.host.tell("host_window", window);
    }

    pub(crate) fn play(&mut self) {
        self.tell_queues();
        let is_full = self.rng.u32(0..4) == 0;
        for step in 0..4_000 {
            // A moment of many events, at the window's start.
            self.is_still = (400..440).contains(&step);
            self.passes(1_000);
            match step {
                400 => self.account.window.0 = self.now,
                3_800 => self.account.window.1 = self.now + self.rng.u64(0..20_000),
                _ if step > 400 && self.rng.u32(0..1_200) == 0 => self.account.half ^= 1,
                _ => {}
            }
            if step == 2_500 && is_full {
                self.host.tell("host_fill", ());
                self.account.is_full = true;
            }
            if self.rng.u32(0..300) == 0 {
                self.account.is_ring_full = self.rng.u32(0..3) == 0;
                let is_full = self.account.is_ring_full;
                self.host.tell("host_fill_ring", (is_full,));
            }
            // Somebody wants statistics from now on.
            if self.rng.u32(0..900) == 0 {
                let disk = self.rng.usize(0..self.disks.len());
                self.disks[disk].iostats |= self.rng.bool();
                self.disks[disk].stats |= self.rng.bool();
                self.tell_queues();
            }
            self.tell_window();
            self.step();
        }
    }

    pub(crate) fn passes(&mut self, most_ns: u64) {
        self.now += if self.is_still {
            0
        } else {
            self.rng.u64(1..most_ns)
        };
    }

    /// The flag that tells of statistics is between others, which tell the contrary.
    fn tell_queues(&self) {
        let flag = 1_u64 << self.asked.config.stats_flag.max(1) >> 1;
        for disk in &self.disks {
            let flags = if disk.stats { flag } else { !flag };
            self.host.tell("host_set_queue", (disk.at, flags));
        }
    }

    pub(crate) fn happens(&mut self, event: Event, at: usize) {
        self.happens_at(event, at, (0, 0), self.now);
    }

    pub(crate) fn happens_at(
        &mut self,
        event: Event,
        at: usize,
        (error, bytes): (i32, u32),
        now: u64,
    ) {
        let attached = self.asked.attached;
        let is_attached = match event {
            Event::Start => attached.start,
            Event::Insert => attached.insert,
            Event::Issue => attached.issue,
            Event::Merge => attached.merge,
            Event::Queue | Event::Split => attached.bios,
            Event::Done => attached.done,
            Event::Requeue | Event::Complete => true,
        };
        if !is_attached {
            return;
        }
        let thread = self.threads[self.rng.usize(0..self.threads.len())];
        let request = self.requests[at];
        let subject = match event {
            Event::Queue | Event::Split => request.facts.bio,
            _ => request.at,
        };
        let (host, cpu) = (&self.host, self.rng.u32(0..CPUS));
        host.tell("host_dress", (request.at, &request.facts));
        host.tell("host_set", (now, cpu, thread.task));
        let (how, queue) = (
            (i64::from(error), u64::from(bytes)),
            self.asked.kernel.with_queue,
        );
        host.tell("host_happens", (event as u32, subject, how.0, how.1, queue));
        let whole = request.bios[0];
        self.is_told(event, &request, &thread, (error, bytes), (now, whole));
        self.assert_slow();
        if event == Event::Complete {
            self.assert_learnt(&request);
        }
    }
}
