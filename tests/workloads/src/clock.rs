//! Clocks in nanoseconds, and sleeping on them.

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid, writable timespec.
    let rc = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(rc, 0, "clock {clock} exists on every supported kernel");
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).expect("clocks are not negative")
}

/// `CLOCK_MONOTONIC`, the clock of `bpf_ktime_get_ns`.
#[must_use]
pub fn mono_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread. Reading it also brings the kernel's own account up to date.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn timespec(ns: u64) -> libc::timespec {
    let part = |value: u64| libc::c_long::try_from(value).expect("times fit in a timespec");
    libc::timespec {
        tv_sec: part(ns / 1_000_000_000),
        tv_nsec: part(ns % 1_000_000_000),
    }
}

fn nanosleep(flags: libc::c_int, ns: u64) {
    let until = timespec(ns);
    // SAFETY: `until` is valid, and no remainder is asked for.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            flags,
            &raw const until,
            std::ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

/// Sleeps for `ns`.
pub fn sleep_ns(ns: u64) {
    nanosleep(0, ns);
}

/// Sleeps until [`mono_ns`] reaches `ns`: periods made of it do not drift.
pub fn sleep_until(ns: u64) {
    nanosleep(libc::TIMER_ABSTIME, ns);
}
