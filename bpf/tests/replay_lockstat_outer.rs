//! lockstat's memory of how far out a thread waits for work, on random waits, against what it did.

#[expect(dead_code, reason = "it has machines for tools, too")]
mod host;

use fastrand::Rng;

use host::Host;

/// A place that a thread has not been at for so long is forgotten, ns.
const KEPT_NS: u64 = 10_000_000_000;
/// Places of one stack are no further apart, bytes.
const STACK_BYTES: u64 = 8 << 20;

/// A wait for work: where, and when it was over.
struct Wait {
    sp: u64,
    begin_ns: u64,
    end_ns: u64,
}

/// The outermost place by all that happened: a place is taken by one further out, or by another one when it is forgotten. It is on
/// another stack if it is further away from `own_sp`, or further in.
fn outermost(waits: &[Wait], now: u64, own_sp: u64) -> u64 {
    let mut outermost: Option<(u64, u64)> = None;
    for wait in waits {
        let stays =
            |(sp, seen_ns): &(u64, u64)| wait.sp < *sp && wait.begin_ns - seen_ns <= KEPT_NS;
        outermost = outermost.filter(stays).or(Some((wait.sp, wait.end_ns)));
    }
    let recent = outermost.filter(|(_, seen_ns)| now - seen_ns <= KEPT_NS);
    let is_near = |sp: &u64| (own_sp..=own_sp + STACK_BYTES).contains(sp);
    recent.map(|(sp, _)| sp).filter(is_near).unwrap_or(0)
}

fn play(host: &Host, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let calls: [u64; 8] = std::array::from_fn(|_| rng.u64(..));
    host.tell("host_begin", (&calls,));
    let mut now = rng.u64(1..1 << 40);
    let mut waits = Vec::new();
    for _ in 0..200 {
        let number = [rng.u64(0..512), rng.u64(510..600), rng.u64(..)][rng.usize(0..3)];
        let is_compat = host.ask::<bool>("host_has_compat", ()) && rng.u32(0..8) == 0;
        let is_for_work = number < 512 && calls[number as usize / 64] >> (number % 64) & 1 == 1;
        let sp = 0x7ff0_0000_0000 + rng.u64(0..20) * 64;
        let length = [
            rng.u64(0..MS),
            rng.u64(0..2 * KEPT_NS),
            KEPT_NS,
            KEPT_NS + 1,
        ];
        let begin_ns = now;
        host.tell("host_sleeps", (now, number, sp, is_compat));
        now += length[rng.usize(0..4)];
        host.tell("host_runs", (now,));
        if is_for_work && !is_compat {
            waits.push(Wait {
                sp,
                begin_ns,
                end_ns: now,
            });
        }
        now += length[rng.usize(0..4)];
        let near = sp + rng.u64(0..20) * 64 - 640;
        let own_sp = [near, sp - STACK_BYTES, sp - STACK_BYTES - 1][rng.usize(0..3)];
        assert_eq!(
            host.ask::<u64>("host_outer_sp", (now, own_sp)),
            outermost(&waits, now, own_sp),
            "seed {seed}"
        );
    }
}

const MS: u64 = 1_000_000;

#[test]
fn a_thread_comes_back_to_where_it_waits_for_work() {
    let object = host::compile("lockstat_outer");
    let host = Host::load(&object);
    for seed in 0..2_000 {
        play(&host, seed);
    }
}
