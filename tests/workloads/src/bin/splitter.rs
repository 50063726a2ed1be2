//! Burns CPU in three functions and measures the share of each.

use serde_json::Value;
use usekit_workloads::account::Account;
use usekit_workloads::flags::Flags;
use usekit_workloads::stage::Stage;
use usekit_workloads::{affinity, clock, countdown};

const USAGE: &str =
    "splitter [--threads N] [--cpu C] [--seconds S | --cpu-seconds S] [--idle-share PERCENT]";

/// Turns of the loop that take about a millisecond; exactness is not needed, time is measured.
const MILLISECOND: u64 = 3_500_000;

// Leaves, alike but for their names, so that a sample's first frame decides which one it counts for.

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn spin_a(turns: u64) -> u64 {
    countdown!(turns).wrapping_add(1)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn spin_b(turns: u64) -> u64 {
    countdown!(turns).wrapping_add(2)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn spin_c(turns: u64) -> u64 {
    countdown!(turns).wrapping_add(3)
}

type Spin = extern "C" fn(u64) -> u64;

const SHARES: [(&str, Spin, u64); 3] = [
    ("spin_a_ns", spin_a, 50),
    ("spin_b_ns", spin_b, 30),
    ("spin_c_ns", spin_c, 20),
];

/// Xorshift: enough to keep the pattern of slices from locking in with a sampler's period.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The function that lags most behind its share. Slices of random length keep the order irregular.
fn most_behind(spent_ns: &[u64; SHARES.len()]) -> usize {
    let total_ns: u64 = spent_ns.iter().sum();
    let lag = |nth: &usize| (total_ns * SHARES[*nth].2 / 100) as i64 - spent_ns[*nth] as i64;
    (0..SHARES.len())
        .max_by_key(lag)
        .expect("there are functions")
}

/// How long to go on: by the clock on the wall, or by the thread's CPU time, however busy the machine is.
#[derive(Clone, Copy)]
enum End {
    Wall(f64),
    Cpu(f64),
}

fn split(end: End, idle_percent: u64, seed: u64) -> Value {
    let mut dice = Dice(seed);
    let mut spent_ns = [0; SHARES.len()];
    let account = Account::open();
    let (now, seconds): (fn() -> u64, f64) = match end {
        End::Wall(seconds) => (clock::mono_ns, seconds),
        End::Cpu(seconds) => (clock::thread_cpu_ns, seconds),
    };
    let end_ns = now() + (seconds * 1e9) as u64;
    // Time that a hypervisor stole may count as CPU time, and is no work.
    let mut left = match end {
        End::Wall(_) => 0,
        End::Cpu(seconds) => (seconds * 1e3) as u64 * MILLISECOND,
    };
    let mut mark_ns = clock::thread_cpu_ns();
    while now() < end_ns || left > 0 {
        let chosen = most_behind(&spent_ns);
        let turns = MILLISECOND / 2 + dice.below(3 * MILLISECOND);
        (SHARES[chosen].1)(turns);
        left = left.saturating_sub(turns);
        let now_ns = clock::thread_cpu_ns();
        spent_ns[chosen] += now_ns - mark_ns;
        if idle_percent > 0 {
            clock::sleep_ns((now_ns - mark_ns) * idle_percent / (100 - idle_percent));
        }
        mark_ns = clock::thread_cpu_ns();
    }
    let spent = SHARES.iter().zip(spent_ns);
    account.close(spent.map(|((name, ..), ns)| (*name, ns)).collect())
}

fn main() {
    let flags = Flags::of_program(USAGE);
    let cpu = flags.number("--cpu");
    let end = match flags.number("--cpu-seconds") {
        Some(seconds) => End::Cpu(seconds),
        None => End::Wall(flags.number("--seconds").unwrap_or(2.0)),
    };
    let idle_percent: u64 = flags.number("--idle-share").unwrap_or(0);
    if idle_percent > 99 {
        flags.reject("--idle-share: 0 to 99 percent");
    }
    let mut stage = Stage::new();
    for i in 0..flags.number("--threads").unwrap_or(1_u64) {
        stage.spawn(&format!("splitter-{i}"), move || {
            affinity::pin_or_die(cpu);
            // Any odd seed will do; the process id makes runs differ.
            let seed =
                ((u64::from(std::process::id()) << 8) | i).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            move || Some(split(end, idle_percent, seed))
        });
    }
    stage.run()
}
