//! Tests of all tools hold reports to this: they fit a terminal, whatever processes, disks and cgroups are called.

use profile::text::{WIDTH, columns};

/// Names that processes may give themselves, of 15 bytes each.
pub(crate) const COMMS: [&str; 4] = [
    "fifteen-letters",
    "日本語の名",
    "\u{1b}]0;\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{7}",
    "\u{202e}\u{202e}\u{202e}\u{202e}\u{202e}",
];

/// A path as an orchestrator makes them, and one that a tenant made up.
pub(crate) const PATHS: [&str; 2] = [
    "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f0c2b9e_5d3a.slice/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope",
    "/sys/fs/cgroup/日本語/日本語/日本語/日本語/日本語/日本語/日本語/日本語/\u{1b}[31m\u{1b}[31m\u{1b}[31m\u{1b}[31m",
];

/// A time that no interval has, ns, and a count.
pub(crate) const LONG_NS: u64 = 123_456_000_000_000;
pub(crate) const MANY: u64 = 12_345_678;

/// Panics where a line is too wide, or holds what a terminal obeys. Commands to paste are as long as they are, and so are rows of
/// histograms, which are bcc's.
pub(crate) fn assert_narrow(text: &str) {
    for line in text.lines() {
        let is_command = line.trim_start().starts_with("next: ");
        let is_row = line.contains(" -> ") && line.ends_with('|');
        let is_narrow = is_command || is_row || columns(line) <= WIDTH;
        assert!(is_narrow, "{line}\n{text}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}
