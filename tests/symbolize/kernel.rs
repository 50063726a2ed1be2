//! Kernel stacks.

use std::fs;

use profile::frame::FrameKind;
use symbols::Origin;

use crate::target::{names, skip, symbolizer};

fn address(symbol: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/kallsyms").ok()?;
    let line = text
        .lines()
        .find(|l| l.split_whitespace().nth(2) == Some(symbol))?;
    u64::from_str_radix(line.split(' ').next()?, 16)
        .ok()
        .filter(|a| *a != 0)
}

#[test]
fn functions_from_root_to_leaf() {
    let (Some(schedule), Some(syscall)) = (address("schedule"), address("do_syscall_64")) else {
        return skip("/proc/kallsyms shows no addresses");
    };
    let mut symbolizer = symbolizer();
    let found = symbolizer.kernel(&[schedule, syscall + 1], Origin::Tracepoint);
    assert_eq!(names(&found), ["do_syscall_64", "schedule"]);
    assert!(
        found
            .iter()
            .all(|f| f.kind == FrameKind::Kernel && f.module.as_deref() == Some("[kernel]"))
    );
    let found = symbolizer.kernel(&[0xffff_ffff_ffff_fff0], Origin::Tracepoint);
    assert_eq!(names(&found), ["[kernel]+0xfffffffffffffff0"]);
    assert_eq!(
        (symbolizer.losses().frames, symbolizer.losses().unnamed),
        (3, 1)
    );
}
