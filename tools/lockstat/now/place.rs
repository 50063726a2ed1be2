//! Where in a process an address is.

use std::collections::HashMap;
use std::fs;

use super::lock::Identity;

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    shared: bool,
    device: String,
    inode: u64,
    path: String,
}

/// The mappings of the processes that were asked about, each read once.
#[derive(Debug, Default)]
pub(crate) struct Places {
    processes: HashMap<u32, Vec<Mapping>>,
}

impl Places {
    /// Which lock a futex word is: other processes may have the same one elsewhere.
    pub(crate) fn identity(
        &mut self,
        tgid: u32,
        space: u64,
        address: u64,
        private: bool,
    ) -> Identity {
        let found = if private {
            None
        } else {
            self.find(tgid, address)
        };
        match found.filter(|mapping| mapping.shared) {
            Some(mapping) => Identity::Shared {
                device: mapping.device.clone(),
                inode: mapping.inode,
                offset: address - mapping.start + mapping.offset,
            },
            None => Identity::Private { space, address },
        }
    }

    /// `app+0x4060`, `[heap]+0x2a0`, or the bare address.
    pub(crate) fn name(&mut self, tgid: u32, address: u64) -> String {
        let Some(mapping) = self.find(tgid, address) else {
            return format!("{address:#x}");
        };
        let within = address - mapping.start + mapping.offset;
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        match name {
            "" => format!("{address:#x}"),
            name => format!("{name}+{within:#x}"),
        }
    }

    fn find(&mut self, tgid: u32, address: u64) -> Option<&Mapping> {
        let mappings = self.processes.entry(tgid).or_insert_with(|| {
            let bytes = fs::read(format!("/proc/{tgid}/maps")).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            text.lines().filter_map(parse).collect()
        });
        mappings
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))
    }
}

/// `7f00-7f10 rw-s 00000000 00:01 1234     /dev/zero (deleted)`
fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let device = fields.next()?;
    let inode = fields.next()?;
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        offset: hexadecimal(offset)?,
        shared: permissions.ends_with('s'),
        device: device.to_owned(),
        inode: inode.parse().ok()?,
        path: fields.next().unwrap_or_default().trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line = "7f0010000000-7f0010001000 rw-s 00002000 00:01 1027                       /dev/zero (deleted)";
        let mapping = parse(line).unwrap();
        assert!(mapping.shared && mapping.inode == 1027 && mapping.offset == 0x2000);
        assert_eq!(mapping.path, "/dev/zero (deleted)");
        let anonymous = parse("7f00-7f10 rw-p 00000000 00:00 0 ").unwrap();
        assert!(!anonymous.shared && anonymous.path.is_empty());
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn own_data_is_where_it_is() {
        static WORD: u32 = 7;
        let address = &raw const WORD as u64;
        let mut places = Places::default();
        let name = places.name(std::process::id(), address);
        assert!(name.contains("+0x"), "{name}");
        assert_eq!(
            places.identity(std::process::id(), 5, address, false),
            Identity::Private { space: 5, address }
        );
        assert_eq!(places.name(std::process::id(), 16), "0x10");
    }
}
