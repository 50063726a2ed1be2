//! Names of locks that are variables of the kernel or of a module.

use std::fs;

/// Data symbols of /proc/kallsyms, read when the first is asked for; many kernels list only functions
/// (`CONFIG_KALLSYMS_ALL=n`).
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// By address.
    data: Option<Vec<(u64, String)>>,
}

/// Kernel and modules lie in the address space's last 2 GiB. Architecture: x86-64.
const IMAGE: u64 = 0xffff_ffff_8000_0000;
/// Further behind a symbol an address is hardly inside that variable.
const LARGEST: u64 = 1 << 16;
/// A kernel that lists its variables has many more; in a list with gaps, what is before an address need not hold it.
const COMPLETE: usize = 1000;

impl Symbols {
    /// `tasklist_lock`, or `cgrp_dfl_root+0x10` inside a larger variable.
    pub(crate) fn name(&mut self, address: u64) -> Option<String> {
        if !is_static(address) {
            return None;
        }
        let data = self.data.get_or_insert_with(read);
        let next = data.partition_point(|(start, _)| *start <= address);
        let (start, name) = data.get(next.checked_sub(1)?)?;
        match address - start {
            0 => Some(name.clone()),
            offset if offset < LARGEST && data.len() >= COMPLETE => {
                Some(format!("{name}+{offset:#x}"))
            }
            _ => None,
        }
    }
}

/// Whether it is a variable rather than allocated.
pub(crate) fn is_static(address: u64) -> bool {
    address >= IMAGE
}

fn read() -> Vec<(u64, String)> {
    parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
}

/// Lines are `address type name [module]`.
fn parse(text: &str) -> Vec<(u64, String)> {
    let mut data: Vec<(u64, String)> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            let is_data = matches!(
                fields.next()?,
                "b" | "B" | "d" | "D" | "r" | "R" | "g" | "G"
            );
            let name = fields.next()?;
            (is_data && address != 0).then(|| (address, name.to_owned()))
        })
        .collect();
    data.sort_unstable();
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_by_address() {
        let text = "ffffffff82000000 D jiffies\nffffffff82000040 d tasklist_lock\n\
                    ffffffff81000000 T _stext\nffffffffc0000100 b pool_lock\t[ext4]\n0 D hidden\n";
        let mut symbols = Symbols {
            data: Some(parse(text)),
        };
        assert_eq!(
            symbols.name(0xffff_ffff_8200_0040).unwrap(),
            "tasklist_lock"
        );
        let inside = 0xffff_ffff_8200_0044;
        assert_eq!(symbols.name(inside), None, "the list has gaps");
        let filler = (0..COMPLETE as u64).map(|n| (n, "filler".into()));
        symbols.data.as_mut().unwrap().splice(..0, filler);
        assert_eq!(symbols.name(inside).unwrap(), "tasklist_lock+0x4");
        assert_eq!(symbols.name(0xffff_ffff_c000_0100).unwrap(), "pool_lock");
        assert_eq!(symbols.name(0xffff_ffff_9000_0000), None, "too far behind");
        assert_eq!(symbols.name(0xffff_8881_0000_0000), None, "allocated");
    }
}
