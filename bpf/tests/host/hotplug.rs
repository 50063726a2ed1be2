//! CPUs that come and go.

use crate::host::machine::Machine;

impl Machine {
    /// The first one stays. Another one that goes is idle before; whom it leaves on a queue gets a CPU elsewhere.
    pub(super) fn comes_or_goes(&mut self, cpu: u32) {
        let at = cpu as usize;
        if !self.offline[at] && cpu > 0 {
            self.switch_to(cpu, 0);
        }
        self.offline[at] = !self.offline[at] && cpu > 0;
    }
}
