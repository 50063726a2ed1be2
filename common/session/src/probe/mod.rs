//! What this kernel offers, found by looking at its BTF and by trying, never by its version number.

use std::path::PathBuf;

use anyhow::{Result, anyhow, ensure};
use host::descriptors::Limit;
use libbpf_rs::btf::{Btf, BtfType, TypeId, types};
use libbpf_rs::{ErrorKind, ReferencesType};
use loader::tracefs;

mod features;
mod report;
mod trial;

pub use features::{Feature, Need, degradations};
pub use report::{describe, print, say};

/// Environment variable naming hooks to treat as absent, comma-separated: exercises the paths of older kernels.
const HIDE: &str = "USEKIT_HIDE_HOOKS";

/// Programs, maps, links and rings of the largest tool, and some files of what it traces.
const FEWEST_DESCRIPTORS: u64 = 128;

/// The running kernel's types, and what follows from them.
pub struct Kernel {
    btf: Btf<'static>,
    hidden: Vec<String>,
}

impl Kernel {
    /// Reads the kernel's BTF, about 12 ms.
    ///
    /// # Errors
    ///
    /// When the kernel has none, or this process may not open enough files to try anything.
    pub fn probe() -> Result<Self> {
        // What fails for want of a descriptor looks like what the kernel does not have.
        let limit = Limit::now().soft;
        ensure!(
            limit >= FEWEST_DESCRIPTORS,
            "{limit} file descriptors are not enough; allow more with ulimit -n 1024"
        );
        loader::keep_log();
        let btf = Btf::from_vmlinux().map_err(|err| {
            let remedy = match err.kind() {
                ErrorKind::NotFound => "; a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed",
                _ => "",
            };
            anyhow!(err).context(format!("read /sys/kernel/btf/vmlinux{remedy}"))
        })?;
        let hidden = std::env::var(HIDE).unwrap_or_default();
        Ok(Self {
            btf,
            hidden: hidden.split(',').map(str::to_owned).collect(),
        })
    }

    /// Whether BPF programs of type `tp_btf` can attach to this tracepoint.
    pub fn has_tracepoint(&self, name: &str) -> bool {
        self.tracepoint_arguments(name).is_some()
    }

    /// Number of arguments of a tracepoint, `None` where the kernel lacks it.
    pub fn tracepoint_arguments(&self, name: &str) -> Option<usize> {
        if self.is_hidden(name) {
            return None;
        }
        let typedef: types::Typedef<'_> = self.btf.type_by_name(&format!("btf_trace_{name}"))?;
        let prototype = prototype(typedef.referenced_type())?;
        // The first parameter is the tracing cookie.
        Some(prototype.len().saturating_sub(1))
    }

    /// Whether returns of a system call have a tracepoint. Where there is no tracefs they are taken to have one: attaching will say
    /// what is wrong.
    pub fn has_syscall_exit(&self, call: &str) -> bool {
        let event = format!("sys_exit_{call}");
        let is_there = |events: PathBuf| events.join("syscalls").join(&event).exists();
        !self.is_hidden(&event) && tracefs::events().map_or(true, is_there)
    }

    /// Whether tracing programs may keep state with tasks (`BPF_MAP_TYPE_TASK_STORAGE`; for tracing since Linux 5.12).
    pub fn has_task_storage(&self) -> bool {
        !self.is_hidden("task_storage") && self.may_call(libbpf_sys::BPF_FUNC_task_storage_get)
    }

    /// Whether tracing programs may take locks in maps (`bpf_spin_lock`; not in Linux 5.10).
    pub fn has_spin_lock(&self) -> bool {
        !self.is_hidden("spin_lock") && self.may_call(libbpf_sys::BPF_FUNC_spin_lock)
    }

    fn has_structure(&self, name: &str) -> bool {
        self.btf.type_by_name::<types::Struct<'_>>(name).is_some()
    }

    /// Whether the kernel has it under this very name, as functions for BPF programs have.
    fn has_function(&self, name: &str) -> bool {
        self.btf.type_by_name::<types::Func<'_>>(name).is_some()
    }

    fn may_call(&self, helper: u32) -> bool {
        let tracepoint: Option<types::Typedef<'_>> =
            self.btf.type_by_name("btf_trace_sched_switch");
        tracepoint.is_some_and(|tracepoint| trial::may_call(helper, tracepoint.type_id().into()))
    }

    /// Whether programs can be put at the entry of a function that every kernel has.
    fn can_trace_functions(&self) -> bool {
        let function: Option<types::Func<'_>> = self.btf.type_by_name("vfs_read");
        function.is_some_and(|function| trial::can_enter(function.type_id().into()))
    }

    fn is_hidden(&self, hook: &str) -> bool {
        self.hidden.iter().any(|hidden| hidden == hook)
    }

    /// The values of an enum by their names; none where the kernel has no such enum.
    pub fn enum_values(&self, name: &str) -> Vec<(String, i64)> {
        let Some(values) = self.btf.type_by_name::<types::Enum<'_>>(name) else {
            return Vec::new();
        };
        let named = values.iter().filter_map(|member| {
            let name = member.name?.to_str()?.to_owned();
            Some((name, member.value))
        });
        named.collect()
    }

    /// The value of a constant that the kernel declares in an enum, which may have no name.
    pub fn enumerator(&self, name: &str) -> Option<i64> {
        let mut ids = (1..u32::try_from(self.btf.len()).unwrap_or(u32::MAX)).map(TypeId::from);
        ids.find_map(|id| {
            let values = self.btf.type_by_id::<types::Enum<'_>>(id)?;
            let mut members = values.iter();
            members.find_map(|member| (member.name?.to_str() == Some(name)).then_some(member.value))
        })
    }
}

fn prototype(pointer: BtfType<'_>) -> Option<types::FuncProto<'_>> {
    let pointer = types::Ptr::try_from(pointer).ok()?;
    types::FuncProto::try_from(pointer.referenced_type()).ok()
}
