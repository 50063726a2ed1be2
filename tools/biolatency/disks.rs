//! Disks and partitions: as the user names them, and as the kernel counts them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags};

/// Minor numbers of the kernel's own device numbers have so many bits.
const MINOR_BITS: u32 = 20;

/// A disk or partition by its name in `/sys/class/block`.
#[derive(Clone, Debug)]
pub(crate) struct Disk(String);

impl FromStr for Disk {
    type Err = String;

    /// `vda`, or any path to its device file.
    fn from_str(text: &str) -> Result<Self, String> {
        let path = fs::canonicalize(text).unwrap_or_else(|_| text.into());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // As in sysfs, where names cannot have slashes: /dev/cciss/c0d0.
        let name = match text.strip_prefix("/dev/") {
            Some(_) if path.starts_with("/dev") && path.components().count() > 3 => {
                let inside = path.strip_prefix("/dev").unwrap_or(&path);
                inside.to_string_lossy().replace('/', "!")
            }
            _ => name.into_owned(),
        };
        if name.is_empty() {
            return Err("not a disk; write vda or /dev/sda1 (see lsblk)".into());
        }
        Ok(Self(name))
    }
}

impl Disk {
    /// Its number.
    ///
    /// # Errors
    ///
    /// When there is no such disk, or none that has requests.
    pub(crate) fn dev(&self) -> Result<u32> {
        let sys = Path::new("/sys/class/block").join(&self.0);
        let text = fs::read_to_string(sys.join("dev"))
            .ok()
            .with_context(|| format!("no disk or partition {}; see lsblk", self.0))?;
        let disk = if sys.join("partition").exists() {
            sys.join("..")
        } else {
            sys.clone()
        };
        if !disk.join("mq").exists() {
            let below = fs::read_dir(disk.join("slaves"));
            let mut below: Vec<String> = below
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            below.sort();
            let remedy = if below.is_empty() {
                String::new()
            } else {
                format!("; its I/O is that of {}", below.join(", "))
            };
            bail!("{} has no requests of its own{remedy}", self.0);
        }
        parse_dev(text.trim()).with_context(|| format!("{}: unexpected number {text}", self.0))
    }
}

/// Fills the BPF side's choice.
///
/// # Errors
///
/// As for [`Disk::dev`], and when the kernel refuses.
pub(crate) fn fill(devs: &[u32], wanted: &impl MapCore) -> Result<()> {
    for dev in devs {
        wanted
            .update(&dev.to_ne_bytes(), &[1], MapFlags::ANY)
            .context("set disks")?;
    }
    Ok(())
}

fn parse_dev(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    Some(major.parse::<u32>().ok()? << MINOR_BITS | minor.parse::<u32>().ok()?)
}

/// `MAJOR:MINOR`.
pub(crate) fn dev_text(dev: u32) -> String {
    format!("{}:{}", dev >> MINOR_BITS, dev & ((1 << MINOR_BITS) - 1))
}

/// What was completed: read, written, discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completed {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

impl Completed {
    pub(crate) fn add(&mut self, more: Self) {
        self.requests += more.requests;
        self.bytes += more.bytes;
    }

    /// What is more than `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// Of the kernel's counts, whatever the disk's own blocks are.
const SECTOR_BYTES: u64 = 512;

/// What the kernel says about a disk or partition in `/proc/diskstats`, whoever uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) in_flight: u64,
    /// Time with something in flight, ms.
    pub(crate) busy_ms: u64,
    pub(crate) completed: Completed,
    /// bios and requests that went into another request.
    pub(crate) merged: u64,
}

/// All disks and partitions by number.
pub(crate) fn stats() -> HashMap<u32, Stat> {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    text.lines().filter_map(parse_stat).collect()
}

/// Whether the kernel counts what is passed through to a disk's driver with its requests: always before 41fa722239b4 (5.18), and
/// where `iostats_passthrough` (6.13) asks for it.
pub(crate) fn counts_commands(name: &str) -> bool {
    let setting = format!(
        "/sys/block/{}/queue/iostats_passthrough",
        name.replace('/', "!")
    );
    match fs::read_to_string(setting) {
        Ok(text) => text.trim() != "0",
        Err(_) => fs::read_to_string("/proc/sys/kernel/osrelease")
            .is_ok_and(|release| is_before_5_18(&release)),
    }
}

fn is_before_5_18(release: &str) -> bool {
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) < (Some(5), Some(18))
}

fn parse_stat(line: &str) -> Option<(u32, Stat)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let dev = u32::try_from(number(0)? << MINOR_BITS | number(1)?).ok()?;
    // Discards came with bdca3c87fb7a (4.19).
    let of_discards = |at| number(at).unwrap_or(0);
    let stat = Stat {
        name: (*fields.get(2)?).to_owned(),
        completed: Completed {
            requests: number(3)? + number(7)? + of_discards(14),
            bytes: SECTOR_BYTES * (number(5)? + number(9)? + of_discards(16)),
        },
        merged: number(4)? + number(8)?,
        in_flight: number(11)?,
        busy_ms: number(12)?,
    };
    Some((dev, stat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_diskstats_is_read() {
        let line = " 254       0 vda 2924927 169746 256661114 5131660 275363 504320 256446936 896721 2 280108 6065907 290981 64 150585000 36366 25704 1157";
        let (dev, stat) = parse_stat(line).unwrap();
        assert_eq!(dev_text(dev), "254:0");
        let expected = Stat {
            name: "vda".into(),
            in_flight: 2,
            busy_ms: 280_108,
            completed: Completed {
                requests: 2_924_927 + 275_363 + 290_981,
                bytes: 512 * (256_661_114 + 256_446_936 + 150_585_000),
            },
            merged: 169_746 + 504_320,
        };
        assert_eq!(stat, expected);
        assert_eq!(parse_stat("254 0 vda 1"), None);
    }

    #[test]
    fn kernels_are_told_by_their_first_two_numbers() {
        assert!(is_before_5_18("5.10.0-46-cloud-amd64") && is_before_5_18("5.17.1"));
        assert!(
            !is_before_5_18("5.18.0") && !is_before_5_18("6.1.0-56") && !is_before_5_18("10.0")
        );
    }

    #[test]
    fn disks_have_names_and_numbers() {
        assert_eq!(parse_dev("8:17"), Some(8 << 20 | 17));
        let missing = "/dev/no-such-disk".parse::<Disk>().unwrap();
        assert_eq!(
            missing.dev().unwrap_err().to_string(),
            "no disk or partition no-such-disk; see lsblk"
        );
    }
}
