//! Consumers that are each woken exactly `count` times, each time out of a true sleep.
//!
//! They wait in `read` of an eventfd from before `ready` to the end, so that neither the start nor the end of
//! the work is a wakeup of its own: what a tracer counts for a consumer is `count`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{iter, thread};

use serde_json::{Value, json};
use usekit_workloads::task::{self, Totals};
use usekit_workloads::{affinity, clock, protocol};

struct Consumer {
    tid: i32,
    bell: File,
    woken: Arc<AtomicU64>,
}

impl Consumer {
    fn start(nth: usize, cpu: Option<usize>) -> Self {
        // SAFETY: takes flags only; the descriptor is checked and then owned by the file.
        let bell = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
            assert!(fd >= 0, "an eventfd can be had");
            File::from_raw_fd(fd)
        };
        let mut own_bell = bell.try_clone().expect("a descriptor can be had");
        let woken = Arc::new(AtomicU64::new(0));
        let own_woken = Arc::clone(&woken);
        let (sender, tid) = std::sync::mpsc::channel();
        let body = move || {
            affinity::pin_or_die(cpu);
            sender.send(task::tid()).expect("the main thread listens");
            loop {
                own_bell
                    .read_exact(&mut [0; 8])
                    .expect("the eventfd stays open");
                own_woken.fetch_add(1, Ordering::Release);
            }
        };
        let name = format!("consumer-{nth}");
        thread::Builder::new()
            .name(name)
            .spawn(body)
            .expect("a few threads can be had");
        Self {
            tid: tid.recv().expect("pinning worked"),
            bell,
            woken,
        }
    }

    /// Waits until the consumer has counted `woken` wakeups and sleeps again. Both are needed: a
    /// wakeup on its way to another CPU can still look like sleep.
    fn wait_asleep(&self, woken: u64) {
        let give_up_ns = clock::mono_ns() + 120_000_000_000;
        while self.woken.load(Ordering::Acquire) != woken {
            assert!(
                clock::mono_ns() < give_up_ns,
                "consumer {} did not wake",
                self.tid
            );
            clock::sleep_ns(20_000);
        }
        task::wait_asleep(self.tid, libc::SYS_read);
    }

    fn ring(&mut self, count: u64) {
        for i in 0..count {
            self.wait_asleep(i);
            self.bell
                .write_all(&1_u64.to_ne_bytes())
                .expect("the eventfd stays open");
        }
        self.wait_asleep(count);
    }
}

fn report(consumer: &Consumer, before: &Totals, wall_ns: u64) -> Value {
    json!({
        "kind": "consumer",
        "tid": consumer.tid,
        "wakeups": consumer.woken.load(Ordering::Acquire),
        "wall_ns": wall_ns,
        "total": task::totals(consumer.tid).since(before).fields(),
    })
}

/// Runs the protocol with `pairs` consumers, on `cpu` if given, each with a producer of its own.
pub(crate) fn run(count: u64, pairs: usize, cpu: Option<usize>) -> ! {
    let mut consumers: Vec<Consumer> = (0..pairs).map(|nth| Consumer::start(nth, cpu)).collect();
    let before: Vec<Totals> = consumers
        .iter()
        .map(|consumer| {
            consumer.wait_asleep(0);
            task::totals(consumer.tid)
        })
        .collect();
    protocol::ready_and_wait();
    let start_ns = clock::mono_ns();
    thread::scope(|scope| {
        for consumer in &mut consumers {
            scope.spawn(move || consumer.ring(count));
        }
    });
    let wall_ns = clock::mono_ns() - start_ns;
    for (consumer, before) in iter::zip(&consumers, &before) {
        protocol::report(&report(consumer, before, wall_ns));
    }
    protocol::done_and_exit()
}
