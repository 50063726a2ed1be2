//! Operations, flags and statuses by their names.

use host::remedies::cause;
use session::probe::Kernel;

/// Bits of the operation in a request's `cmd_flags`.
const OP_MASK: u32 = 0xff;

/// The running kernel's names, from its enums.
pub(crate) struct Names {
    ops: Vec<(String, u32)>,
    flags: Vec<(String, u32)>,
    has_zone_resource: bool,
}

impl Names {
    /// Reads them from BTF.
    pub(crate) fn of(kernel: &Kernel) -> Self {
        // ff07a02e9e8e (6.0) renamed the enum.
        let mut ops = values(kernel, "req_op", "REQ_OP_");
        if ops.is_empty() {
            ops = values(kernel, "req_opf", "REQ_OP_");
        }
        ops.retain(|(name, _)| name != "last");
        let mut flags = values(kernel, "req_flag_bits", "__REQ_");
        flags.retain(|(name, bit)| name != "nr_bits" && *bit < 32);
        Self {
            ops,
            flags,
            has_zone_resource: kernel.enumerator("__RQF_ZONE_WRITE_PLUGGING").is_none(),
        }
    }

    /// No names at all.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self {
            ops: Vec::new(),
            flags: Vec::new(),
            has_zone_resource: true,
        }
    }

    /// The operation: `write`.
    pub(crate) fn op(&self, opf: u32) -> String {
        let named = self.ops.iter().find(|(_, value)| *value == opf & OP_MASK);
        named.map_or_else(
            || format!("operation {}", opf & OP_MASK),
            |(name, _)| name.clone(),
        )
    }

    /// The flags, in the order of their bits: `sync`, `fua`.
    pub(crate) fn flags(&self, opf: u32) -> Vec<&str> {
        let set = self.flags.iter().filter(|(_, bit)| opf >> bit & 1 == 1);
        set.map(|(name, _)| name.as_str()).collect()
    }

    /// A completion's status in the kernel log's words; before 5.16 it is a negative errno.
    pub(crate) fn status(&self, status: i32) -> String {
        if status < 0 {
            return cause(&std::io::Error::from_raw_os_error(-status));
        }
        // Macros, which BTF does not have. Up to 13 they have never changed.
        let name = match status {
            1 => "not supported",
            2 => "timeout",
            3 => "no space",
            4 => "transport",
            5 => "target",
            6 => "reservation conflict",
            7 => "medium",
            8 => "protection",
            9 => "kernel resource",
            10 => "I/O",
            11 => "device-mapper retry",
            12 => "would block",
            13 => "device resource",
            // 6.10 removed what had been 14.
            _ if self.has_zone_resource => return format!("status {status}"),
            14 => "open zones exceeded",
            15 => "active zones exceeded",
            16 => "offline",
            17 => "duration limit",
            19 => "invalid size or alignment",
            _ => return format!("status {status}"),
        };
        name.to_owned()
    }
}

fn values(kernel: &Kernel, name: &str, prefix: &str) -> Vec<(String, u32)> {
    let values = kernel.enum_values(name).into_iter();
    let named = values.filter_map(|(name, value)| {
        let short = name.strip_prefix(prefix)?.to_ascii_lowercase();
        Some((short, u32::try_from(value).ok()?))
    });
    named.collect()
}
