//! Waits that the clock ends: sleeping, and polling what never comes.

use std::os::fd::AsRawFd;

use usekit_workloads::clock;
use usekit_workloads::stage::Stage;

use crate::measure::Plan;

pub(crate) fn sleep(stage: &mut Stage, plan: Plan) {
    plan.waiter(stage, move || move |_| clock::sleep_ns(plan.period_ns));
}

fn millis(plan: Plan) -> libc::c_int {
    libc::c_int::try_from(plan.period_ns / 1_000_000).expect("a timeout fits")
}

pub(crate) fn poll(stage: &mut Stage, plan: Plan) {
    plan.waiter(stage, move || {
        let (silent, writer) = std::io::pipe().expect("a pipe can be had");
        move |_| {
            let _open = &writer;
            let mut fd = libc::pollfd {
                fd: silent.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid pollfd.
            let ready = unsafe { libc::poll(&raw mut fd, 1, millis(plan)) };
            assert_eq!(ready, 0, "nobody writes to this pipe");
        }
    });
}

pub(crate) fn epoll(stage: &mut Stage, plan: Plan) {
    plan.waiter(stage, move || {
        // SAFETY: takes flags only.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0, "an epoll instance can be had");
        move |_| {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: room for one event; the descriptor stays open to the end of the process.
            let ready = unsafe { libc::epoll_wait(epoll, &raw mut event, 1, millis(plan)) };
            // The kernel does not go on with it where the process was stopped.
            let is_stopped = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
            assert!(ready == 0 || is_stopped, "nothing is watched here");
        }
    });
}
