//! Waits whose stacks were left out.

/// Waits, and those of them that got no user stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Without.
    pub waits: u64,
    /// Their time, ns.
    pub ns: u64,
    /// Time of all waits that ended while some were left out, each up to 10 ms, ns: what sleeps for long is no load.
    pub of_ns: u64,
}

impl LeftOut {
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            waits: self.waits - before.waits,
            ns: self.ns - before.ns,
            of_ns: self.of_ns - before.of_ns,
        }
    }

    /// Share of the time.
    pub(super) fn share(&self) -> f64 {
        self.ns as f64 / self.of_ns.max(1) as f64
    }
}
