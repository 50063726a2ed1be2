//! Trying what the kernel's type information does not tell: small programs that the verifier is to judge.

use std::ffi::CStr;

use libbpf_sys::{
    BPF_CALL, BPF_EXIT, BPF_JMP, BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, bpf_insn,
    bpf_prog_load_opts,
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
    let log = verdict(helper, tracepoint);
    !REFUSALS.iter().any(|refusal| log.contains(refusal))
}

/// The verifier's words on `call HELPER; exit`, which it refuses in any case: no argument is there.
fn verdict(helper: u32, tracepoint: u32) -> String {
    let code = |operation: u32| u8::try_from(BPF_JMP | operation).expect("a byte");
    let program = [
        bpf_insn {
            code: code(BPF_CALL),
            imm: helper.cast_signed(),
            ..bpf_insn::default()
        },
        bpf_insn {
            code: code(BPF_EXIT),
            ..bpf_insn::default()
        },
    ];
    let mut log = vec![0_u8; LOG_BYTES];
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: BPF_TRACE_RAW_TP,
        attach_btf_id: tracepoint,
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
    if fd >= 0 {
        // SAFETY: ours, and nobody else knows it.
        unsafe { libc::close(fd) };
    }
    CStr::from_bytes_until_nul(&log).map_or_else(
        |_| String::new(),
        |text| text.to_string_lossy().into_owned(),
    )
}
