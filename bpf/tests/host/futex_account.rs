//! An account of waits on futexes, as threads had them.

/// A wait that is over, or open at the window's end.
pub(crate) struct Counted {
    pub(crate) tid: u32,
    pub(crate) length_ns: u64,
    pub(crate) run_queue_ns: u64,
    pub(crate) is_given_up: bool,
    pub(crate) is_open: bool,
    /// Thread and process of who ended it.
    pub(crate) holder: Option<(u32, u32)>,
}

/// All waits of a lock, by the operation that waited.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) waits: Vec<Counted>,
    /// Calls that did not sleep.
    pub(crate) raced: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Wait {
    begin_ns: u64,
    /// Since when it could run, and does not.
    pub(crate) queued_ns: Option<u64>,
    pub(crate) run_queue_ns: u64,
    pub(crate) holder: Option<(u32, u32)>,
}

impl Wait {
    pub(crate) fn at(begin_ns: u64) -> Self {
        Self {
            begin_ns,
            queued_ns: None,
            run_queue_ns: 0,
            holder: None,
        }
    }

    /// Over; who waited in vain was not kept by whoever woke it.
    pub(crate) fn counted(self, tid: u32, end_ns: u64, ret: i64) -> Counted {
        Counted {
            tid,
            length_ns: end_ns - self.begin_ns,
            run_queue_ns: self.run_queue_ns,
            is_given_up: ret < 0,
            is_open: false,
            holder: self.holder.filter(|_| ret >= 0),
        }
    }

    pub(crate) fn open(self, tid: u32, end_ns: u64) -> Counted {
        Counted {
            run_queue_ns: self.run_queue_ns + self.queued_ns.map_or(0, |since| end_ns - since),
            is_open: true,
            is_given_up: false,
            holder: self.holder,
            ..self.counted(tid, end_ns, 0)
        }
    }
}

impl Row {
    pub(crate) fn copy(&self) -> Self {
        let copy = |wait: &Counted| Counted { ..*wait };
        Self {
            waits: self.waits.iter().map(copy).collect(),
            raced: self.raced,
        }
    }
}
