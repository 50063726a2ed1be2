//! A task's facts, as a test has them and a tool's programs read them.

use std::ffi::c_void;

use crate::host::Host;
use crate::host::machine::Task as Body;

pub(crate) const KTHREAD: u32 = 0x0020_0000;
/// `PF_FORKNOEXEC`: a child that has executed nothing yet.
pub(crate) const NO_EXEC: u32 = 0x40;
/// Inode numbers of the tool's PID namespace, and of one beside it.
pub(crate) const NAMESPACES: [u32; 2] = [7, 8];

/// `struct host_facts` of host/tasks.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Facts {
    pub(crate) pid: u32,
    pub(crate) tgid: u32,
    pub(crate) inner_pid: u32,
    pub(crate) inner_namespace: u32,
    pub(crate) flags: u32,
    pub(crate) live: u32,
    pub(crate) start_time: u64,
    pub(crate) leader: Body,
    pub(crate) parent: Body,
    pub(crate) cgroup: *mut c_void,
    pub(crate) comm: [u8; 16],
}

/// Writes facts into a task's memory.
pub(crate) fn dress_as(host: &Host, body: Body, facts: &Facts) {
    host.tell("host_dress", (body, facts));
}
