//! The CPUs that the kernel's unbound workers may run on.

use std::fs;

use anyhow::{Context, Result};

const MASK: &str = "/sys/devices/virtual/workqueue/cpumask";

/// Unbound workers stay on one CPU until this is dropped; then they have all back that they had.
pub(crate) struct WorkersOn {
    before: String,
}

impl WorkersOn {
    pub(crate) fn new(cpu: usize) -> Result<Self> {
        let before = fs::read_to_string(MASK).with_context(|| format!("read {MASK}"))?;
        fs::write(MASK, mask(cpu)).with_context(|| format!("write {MASK}"))?;
        Ok(Self { before })
    }
}

impl Drop for WorkersOn {
    fn drop(&mut self) {
        // What could be written before can be again; and a panic here would hide another.
        let _ = fs::write(MASK, self.before.trim());
    }
}

/// As the kernel reads a set of CPUs: groups of 32, the highest first.
fn mask(cpu: usize) -> String {
    let highest = format!("{:x}", 1u32 << (cpu % 32));
    highest + &",00000000".repeat(cpu / 32)
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn masks_are_groups_of_32() {
        assert_eq!(mask(0), "1");
        assert_eq!(mask(5), "20");
        assert_eq!(mask(31), "80000000");
        assert_eq!(mask(33), "2,00000000");
    }
}
