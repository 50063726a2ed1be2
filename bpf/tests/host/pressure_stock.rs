//! Stock that the iterator of pressure hands out, and stock as it should be.

use bpf::pressure::types::exited_key;

use crate::machine::Machine;
use crate::members::{ASLEEP, CPU, IO, MEMORY, Phase};

/// `struct account` of stall_phases.bpf.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Account {
    pub(crate) lost_ns: [u64; 3],
    pub(crate) caused_ns: u64,
    pub(crate) ios: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) faults: u64,
}

impl Account {
    /// Growth since the last visit; the sums grow by it.
    fn grown_to(&mut self, total: &Self) -> Self {
        let grow = |from: &mut u64, to: u64| {
            let grown = to.saturating_sub(*from);
            *from += grown;
            grown
        };
        Self {
            lost_ns: [CPU, MEMORY, IO].map(|on| grow(&mut self.lost_ns[on], total.lost_ns[on])),
            caused_ns: grow(&mut self.caused_ns, total.caused_ns),
            ios: grow(&mut self.ios, total.ios),
            read_bytes: grow(&mut self.read_bytes, total.read_bytes),
            written_bytes: grow(&mut self.written_bytes, total.written_bytes),
            faults: grow(&mut self.faults, total.faults),
        }
    }
}

/// `struct task_stock` of stocktaking.bpf.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Stock {
    account: Account,
    cgroup_id: u64,
    open_ns: u64,
    tgid: u32,
    tid: u32,
    comm: [u8; 16],
    process_comm: [u8; 16],
    open: u8,
    kernel_thread: u8,
    exited: u8,
    pad: [u8; 5],
}

impl Machine {
    /// Time in which the kernel itself may be still at it.
    const SWITCHING_NS: u64 = 1_000_000;

    fn stock(&mut self, at: usize, now: u64) -> Option<Stock> {
        let thread = &self.threads[at];
        let member = thread.member.as_ref().expect("a member");
        let mut total = Account {
            lost_ns: member.lost_ns,
            caused_ns: member.caused_ns,
            ios: member.ios,
            ..self.usage(at)
        };
        for (lost_ns, is_stalled) in total.lost_ns.iter_mut().zip(member.stalls()) {
            *lost_ns += if is_stalled {
                now.saturating_sub(member.since_ns)
            } else {
                0
            };
        }
        if member.phase == Phase::Running {
            let cpu = &self.cpus[member.cpu];
            let waiting = u64::try_from(cpu.counts[0]).unwrap_or(0);
            let passed_ns = now.saturating_sub(cpu.since_ns);
            let since_ns = cpu.waited_ns.wrapping_sub(member.waited_at_ns);
            let open_ns = since_ns.wrapping_add(passed_ns * waiting);
            total.caused_ns = total.caused_ns.wrapping_add(open_ns);
        }
        let leader = &self.threads[self.leader_of(at)];
        let mut stock = Stock {
            cgroup_id: thread.cgroup_id,
            tgid: thread.tgid,
            tid: thread.tid,
            comm: thread.facts.comm,
            process_comm: leader.facts.comm,
            kernel_thread: thread.is_kernel.into(),
            ..Stock::default()
        };
        let member = self.threads[at].member.as_mut().expect("a member");
        stock.account = member.reported.grown_to(&total);
        (stock.account != Account::default()).then_some(stock)
    }

    /// The iterator comes by.
    pub(crate) fn is_visited(&mut self, at: usize) {
        self.show_all();
        self.set_user_space();
        let mut told = Stock::default();
        let is_told = self
            .host
            .ask::<bool>("host_take_stock", (self.threads[at].task, &mut told));
        let expected = self.visit(at);
        assert_eq!(
            is_told.then_some(told),
            expected,
            "{}, thread {at}",
            self.what
        );
    }

    fn visit(&mut self, at: usize) -> Option<Stock> {
        self.threads[at].member.as_ref()?;
        let edge_ns = self.edge_ns;
        self.check_phase(at, edge_ns);
        let member = self.threads[at].member.as_ref()?;
        let (phase, since_ns, stalls) = (member.phase, member.since_ns, member.stalls());
        if self.asked.stacks && self.previous_edge_ns > 0 && phase != Phase::Running {
            self.reports_open(at);
        }
        let mut stock = self.stock(at, edge_ns)?;
        stock.open = match phase {
            Phase::Waiting => 1 << CPU,
            Phase::Asleep => [MEMORY, IO]
                .map(|on| u8::from(stalls[on]) << on)
                .iter()
                .sum(),
            _ => 0,
        };
        if stock.open > 0 {
            stock.open_ns = edge_ns.saturating_sub(since_ns);
        }
        Some(stock)
    }

    /// A thread that does not do what it was seen to begin had an event hidden.
    fn check_phase(&mut self, at: usize, now: u64) {
        let thread = &self.threads[at];
        let member = thread.member.as_ref().expect("a member");
        let is_settled = now >= member.since_ns + Self::SWITCHING_NS;
        if matches!(member.phase, Phase::Unknown | Phase::Dead) || !is_settled {
            return;
        }
        let is_other = thread.facts.runs != (member.phase == Phase::Running);
        if is_other || self.is_stale(at) {
            self.drop_phase(at, now);
        } else if ASLEEP == member.phase && thread.is_queued() {
            self.begins_to_wait(at, now);
        }
    }

    /// A thread ends, in its own context.
    pub(crate) fn exits(&mut self, at: usize, now: u64) {
        let Some(member) = &self.threads[at].member else {
            return;
        };
        if matches!(member.phase, Phase::Waiting | Phase::Asleep) {
            self.drop_phase(at, now);
        }
        let Some(mut stock) = self.stock(at, now) else {
            return;
        };
        stock.exited = 1;
        self.told.exits += 1;
        let thread = &self.threads[at];
        let key = exited_key {
            start_ns: thread.start_time,
            tid: thread.tid,
            pad: 0,
        };
        let told = self.host.entry::<_, Stock>("exited", &key);
        self.told.exited_full += u64::from(self.is_full);
        assert_eq!(told, (!self.is_full).then_some(stock), "{}", self.what);
    }
}
