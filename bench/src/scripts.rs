//! Scripts for bpftrace that answer as our tools do.

/// The same as bpftrace's own `runqlat.bt`, which does not compile against the headers of today, for one process.
pub(crate) const RUNQLAT: &str = r#"
tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new { @since[args->pid] = nsecs; }
tracepoint:sched:sched_switch {
    if (args->prev_state == 0) { @since[args->prev_pid] = nsecs; }
    $since = @since[args->next_pid];
    if ($since && args->next_comm == "sched-pipe") { @usecs = hist((nsecs - $since) / 1000); }
    delete(@since[args->next_pid]);
}
END { clear(@since); }"#;

/// The same as bcc's `offcputime`, for one process. The value is printed behind the stacks.
pub(crate) const OFFCPUTIME: &str = r#"
tracepoint:sched:sched_switch {
    if (args->prev_comm == "sched-pipe") { @since[args->prev_pid] = nsecs; }
    $since = @since[args->next_pid];
    if ($since && pid == $1) { @usecs[kstack, ustack, comm] = sum((nsecs - $since) / 1000); }
    delete(@since[args->next_pid]);
}
END { clear(@since); }"#;

/// The same as bpftrace's own `biolatency.bt`, which needs kprobes.
pub(crate) const BIOLATENCY: &str = r#"
tracepoint:block:block_rq_issue { @since[args->dev, args->sector] = nsecs; }
tracepoint:block:block_rq_complete {
    $since = @since[args->dev, args->sector];
    if ($since) { @usecs = hist((nsecs - $since) / 1000); delete(@since[args->dev, args->sector]); }
}
END { clear(@since); }"#;

/// Waits only: FUTEX_WAIT and FUTEX_WAIT_BITSET.
pub(crate) const LOCKSTAT: &str = r#"
tracepoint:syscalls:sys_enter_futex /pid == $1 && ((args->op & 127) == 0 || (args->op & 127) == 9)/ { @since[tid] = nsecs; }
tracepoint:syscalls:sys_exit_futex /@since[tid]/ {
    @usecs[ustack, comm] = sum((nsecs - @since[tid]) / 1000);
    @waits = count();
    delete(@since[tid]);
}
END { clear(@since); }"#;

pub(crate) const PROFILE: &str = "profile:hz:99 /pid/ { @[kstack, ustack, comm] = count(); }";
