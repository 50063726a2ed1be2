//! Trying what the kernel's type information does not tell: small programs that the verifier is to judge, events opened and
//! closed again.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use host::perf;
use libbpf_sys::{
    BPF_ALU64, BPF_CALL, BPF_EXIT, BPF_JMP, BPF_MOV, BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY,
    BPF_TRACE_RAW_TP, bpf_insn, bpf_prog_load_opts,
};
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_TYPE_HARDWARE, perf_event_attr,
};

/// More than the verifier says about two instructions.
const LOG_BYTES: usize = 4096;

/// What the verifier says where a helper does not exist, or not for this kind of program.
const REFUSALS: [&str; 3] = ["unknown func", "invalid func", "cannot use helper"];

/// Whether programs on a tracepoint may call the helper with this number (`enum bpf_func_id`). `tracepoint`: the BTF ID of
/// any `btf_trace_*` type.
///
/// A kernel that judges no programs of ours at all (lockdown, missing capabilities) is taken to have it: loading the real
/// programs will say what is wrong.
pub(super) fn may_call(helper: u32, tracepoint: u32) -> bool {
    // No argument is there: it is refused in any case.
    let call = [
        instruction(BPF_JMP | BPF_CALL, helper.cast_signed()),
        instruction(BPF_JMP | BPF_EXIT, 0),
    ];
    let (_, log) = load(&call, BPF_TRACE_RAW_TP, tracepoint);
    !REFUSALS.iter().any(|refusal| log.contains(refusal))
}

/// Whether a program can be attached to the entry of a function, whose BTF ID this is. For an instant it is.
pub(super) fn can_enter(function: u32) -> bool {
    let nothing = [
        instruction(BPF_ALU64 | BPF_MOV, 0),
        instruction(BPF_JMP | BPF_EXIT, 0),
    ];
    let (program, _) = load(&nothing, BPF_TRACE_FENTRY, function);
    program.is_some_and(|program| {
        // SAFETY: a program of ours; without a name the kernel attaches it to what it was loaded for.
        let link =
            unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) };
        owned(link).is_some()
    })
}

/// Whether breakpoints can be set in kernel code. For an instant one is.
pub(super) fn has_kprobes() -> bool {
    let kind = fs::read_to_string("/sys/bus/event_source/devices/kprobe/type");
    let Some(kind) = kind.ok().and_then(|kind| kind.trim().parse().ok()) else {
        return false;
    };
    let mut attr = event(kind, 0);
    attr.__bindgen_anon_3.kprobe_func = c"vfs_read".as_ptr() as u64;
    perf::open(&attr, -1, 0).is_ok()
}

/// Whether the CPU counts its cycles for us.
pub(super) fn has_hardware_events() -> bool {
    perf::open(
        &event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES.into()),
        0,
        -1,
    )
    .is_ok()
}

fn event(kind: u32, config: u64) -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: kind,
        config,
        size: u32::try_from(size_of::<perf_event_attr>()).expect("small"),
        ..perf_event_attr::default()
    };
    attr.set_disabled(1);
    attr
}

fn instruction(code: u32, imm: i32) -> bpf_insn {
    bpf_insn {
        code: u8::try_from(code).expect("a byte"),
        imm,
        ..bpf_insn::default()
    }
}

/// The program, where the verifier takes it, and the verifier's words.
fn load(program: &[bpf_insn], kind: u32, target: u32) -> (Option<OwnedFd>, String) {
    let mut log = vec![0_u8; LOG_BYTES];
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: kind,
        attach_btf_id: target,
        log_level: 1,
        log_size: u32::try_from(LOG_BYTES).expect("small"),
        log_buf: log.as_mut_ptr().cast(),
        ..bpf_prog_load_opts::default()
    };
    // SAFETY: names are C strings, the log is as long as it says, and everything lives until the call returns.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            BPF_PROG_TYPE_TRACING,
            c"trial".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    let log = CStr::from_bytes_until_nul(&log).map_or_else(
        |_| String::new(),
        |text| text.to_string_lossy().into_owned(),
    );
    (owned(fd), log)
}

fn owned(fd: i32) -> Option<OwnedFd> {
    // SAFETY: new, and nobody else knows it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
