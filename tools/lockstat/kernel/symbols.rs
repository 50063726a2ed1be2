//! Names of locks that are variables of the kernel or of a module.

use std::fs;
use std::ops::Range;

use host::KERNEL_IMAGE;

/// Data symbols of /proc/kallsyms, read when the first is asked for; many kernels list only functions
/// (`CONFIG_KALLSYMS_ALL=n`).
#[derive(Debug, Default)]
pub(crate) struct Symbols(Option<List>);

#[derive(Debug, Default)]
struct List {
    /// By address.
    data: Vec<(u64, String)>,
    /// The kernel, and the modules: these are beside each other.
    images: [Range<u64>; 2],
}

/// Further behind a symbol an address is hardly inside that variable.
const LARGEST: u64 = 1 << 16;
/// An image that tells where it begins alone is taken to be so large; arm64 kernels of 7.2 have 38 MiB.
const LARGEST_IMAGE: u64 = 64 << 20;
/// A kernel that lists its variables has many more; in a list with gaps, what is before an address need not hold it.
const COMPLETE: usize = 1000;

impl Symbols {
    /// `tasklist_lock`, or `cgrp_dfl_root+0x10` inside a larger variable.
    pub(crate) fn name(&mut self, address: u64) -> Option<String> {
        if !self.is_static(address) {
            return None;
        }
        self.list().name(address)
    }

    /// True if it is a variable rather than allocated.
    pub(crate) fn is_static(&mut self, address: u64) -> bool {
        match KERNEL_IMAGE {
            Some(start) => address >= start,
            None => self.list().holds(address),
        }
    }

    fn list(&mut self) -> &List {
        self.0.get_or_insert_with(|| {
            List::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
        })
    }
}

impl List {
    fn name(&self, address: u64) -> Option<String> {
        let next = self.data.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.data.get(next.checked_sub(1)?)?;
        match address - start {
            0 => Some(name.clone()),
            offset if offset < LARGEST && self.data.len() >= COMPLETE => {
                Some(format!("{name}+{offset:#x}"))
            }
            _ => None,
        }
    }

    fn holds(&self, address: u64) -> bool {
        self.images.iter().any(|image| image.contains(&address))
    }

    /// Lines are `address type name [module]`.
    fn parse(text: &str) -> Self {
        let mut list = Self::default();
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace();
            let address = fields.next().map(|text| u64::from_str_radix(text, 16));
            let (Some(Ok(address)), Some(kind), Some(name)) =
                (address, fields.next(), fields.next())
            else {
                continue;
            };
            if address == 0 {
                continue;
            }
            list.extend(address, name, fields.next());
            if matches!(kind, "b" | "B" | "d" | "D" | "r" | "R" | "g" | "G") {
                list.data.push((address, name.to_owned()));
            }
        }
        list.data.sort_unstable();
        list
    }

    /// Takes a symbol into its image: the kernel's is from `_stext` to `_end`, but the latter is a variable, and may not be listed.
    fn extend(&mut self, address: u64, name: &str, module: Option<&str>) {
        let [kernel, modules] = &mut self.images;
        match (module, name) {
            // BPF programs and the like are no modules, and lie elsewhere.
            (Some(module), _) if module.starts_with("[__builtin") || module == "[bpf]" => {}
            (Some(_), _) if modules.is_empty() => *modules = address..address + LARGEST,
            (Some(_), _) => {
                modules.start = modules.start.min(address);
                modules.end = modules.end.max(address + LARGEST);
            }
            (None, "_stext") => *kernel = address..kernel.end.max(address + LARGEST_IMAGE),
            (None, "_end") => kernel.end = address,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_by_address() {
        let text = "ffffffff82000000 D jiffies\nffffffff82000040 d tasklist_lock\n\
                    ffffffff81000000 T _stext\nffffffffc0000100 b pool_lock\t[ext4]\n0 D hidden\n";
        let mut list = List::parse(text);
        assert_eq!(list.name(0xffff_ffff_8200_0040).unwrap(), "tasklist_lock");
        let inside = 0xffff_ffff_8200_0044;
        assert_eq!(list.name(inside), None, "the list has gaps");
        let filler = (0..COMPLETE as u64).map(|n| (n, "filler".into()));
        list.data.splice(..0, filler);
        assert_eq!(list.name(inside).unwrap(), "tasklist_lock+0x4");
        assert_eq!(list.name(0xffff_ffff_c000_0100).unwrap(), "pool_lock");
        assert_eq!(list.name(0xffff_ffff_9000_0000), None, "too far behind");
    }

    /// An arm64 kernel and its modules lie anywhere among what is allocated in pages.
    #[test]
    fn variables_are_those_in_the_kernel_and_its_modules() {
        let text = "ffffa1cb84400000 T _text\nffffa1cb84410000 T _stext\nffffa1cb86000040 D tasklist_lock\n\
                    ffffa1cb86a00000 B _end\nffffa1cb3c000000 t ext4_get\t[ext4]\nffffa1cb3d000100 b pool_lock\t[xfs]\n\
                    ffff800080001000 t bpf_prog_1_one\t[bpf]\n";
        let list = List::parse(text);
        for address in [
            0xffff_a1cb_8600_0040,
            0xffff_a1cb_3c80_0000,
            0xffff_a1cb_3d00_0108,
        ] {
            assert!(list.holds(address), "{address:#x}");
        }
        for address in [
            0xffff_8000_8000_1010,
            0xffff_a1cb_86a0_0000,
            0xffff_0000_0123_4560,
            0xffff_a1cb_9000_0000,
        ] {
            assert!(!list.holds(address), "{address:#x}");
        }
        let functions = List::parse("ffffa1cb84410000 T _stext\n");
        assert!(
            functions.holds(0xffff_a1cb_8600_0040),
            "the end is not listed"
        );
        assert!(!functions.holds(0xffff_a1cb_9000_0000));
        let mut symbols = Symbols(Some(list));
        // On x86-64 an address alone tells.
        assert_eq!(
            symbols.is_static(0xffff_ffff_8200_0040),
            KERNEL_IMAGE.is_some()
        );
        assert_eq!(symbols.name(0xffff_0000_0123_4560), None, "allocated");
    }
}
