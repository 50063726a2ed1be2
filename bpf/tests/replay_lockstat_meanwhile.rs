//! lockstat's memory of what threads did in their turn while others waited for them, on random pauses, against what they did.

#[expect(dead_code, reason = "it has machines for tools, too")]
mod host;

use fastrand::Rng;

use host::Host;

/// Pauses that a thread remembers.
const REMEMBERED: usize = 16;
/// `enum meanwhile`.
const ON_CPU: usize = 0;
const RUN_QUEUE: usize = 1;
const OTHERS: usize = 3;
const UNKNOWN: usize = 5;

/// A stretch of time, and what the thread did in it.
struct Part {
    begin_ns: u64,
    end_ns: u64,
    what: usize,
}

/// Time by what was done in [from, now], of which nothing is known before `known_from`.
fn sums(parts: &[Part], known_from: u64, [from, now]: [u64; 2]) -> [u64; 6] {
    let mut sums = [0; 6];
    let known_from = known_from.clamp(from, now);
    sums[UNKNOWN] = known_from - from;
    let mut paused = 0;
    for part in parts {
        let begin = part.begin_ns.max(known_from);
        let length = part.end_ns.min(now).saturating_sub(begin);
        sums[part.what] += length;
        paused += length;
    }
    sums[ON_CPU] += now - known_from - paused;
    sums
}

fn play(host: &Host, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let start = rng.u64(1..1 << 40);
    let (mut now, mut parts, mut since) = (start, Vec::new(), None);
    // Begin, end and lock of each.
    let mut pauses: Vec<(u64, u64, u64)> = Vec::new();
    host.tell("host_begin", ());
    for _ in 0..40 {
        now += rng.u64(0..5_000);
        if rng.u32(0..16) == 0 {
            // It gets a CPU, and nobody saw it leave.
            host.tell("host_runs", (now,));
            since = Some(now);
        }
        let what = [RUN_QUEUE, 2, OTHERS, 4][rng.usize(0..4)];
        let lock = match what {
            OTHERS => rng.u64(1..4),
            _ => 0,
        };
        let begin_ns = now;
        since = since.or(Some(now));
        host.tell("host_leaves", (now, what as u64, lock));
        now += rng.u64(0..5_000);
        let woken_ns = now;
        let is_woken = rng.bool();
        if is_woken {
            host.tell("host_is_woken", (now,));
            now += rng.u64(0..5_000);
            // Only the first wakeup makes it runnable.
            host.tell("host_is_woken", (now,));
        }
        host.tell("host_runs", (now,));
        // While it runs, somebody wakes it for nothing.
        host.tell("host_is_woken", (now + 1,));
        let middle = match (what, is_woken) {
            (RUN_QUEUE, _) => begin_ns,
            (_, true) => woken_ns,
            (_, false) => now,
        };
        for (begin_ns, end_ns, what) in [(begin_ns, middle, what), (middle, now, RUN_QUEUE)] {
            parts.push(Part {
                begin_ns,
                end_ns,
                what,
            });
        }
        pauses.push((begin_ns, now, lock));
        now += rng.u64(0..5_000);
        let from = now - rng.u64(0..now - start + 2);
        let remembered = &pauses[pauses.len().saturating_sub(REMEMBERED)..];
        let oldest = remembered[0].0;
        let oldest = if pauses.len() < REMEMBERED { 0 } else { oldest };
        let known_from = oldest.max(since.expect("it has left a CPU"));
        let turn = rng.u64(0..4);
        let own = remembered
            .iter()
            .filter(|pause| turn != 0 && pause.2 == turn);
        let its_turn = own.map(|pause| pause.1).max().unwrap_or(0);
        let expected = sums(&parts, known_from, [from.max(its_turn), now]);
        let found: [u64; 6] =
            std::array::from_fn(|what| host.ask("host_meanwhile", (turn, from, now, what as u64)));
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn a_thread_remembers_what_it_did() {
    let object = host::compile("lockstat_meanwhile");
    let host = Host::load(&object);
    for seed in 0..2_000 {
        play(&host, seed);
    }
}
