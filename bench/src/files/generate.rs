//! Files of any size that look like real ones: a tree of some ten thousand stacks, the common ones far more often.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Different stacks; a busy server's profile has as many.
const STACKS: u64 = 20_000;
/// Bits of a function's number. With four kinds of names there are up to 65,536 functions, as in the largest programs.
const FUNCTIONS: u32 = 14;

/// Xorshift: the same files every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Stack number `n`, root first: which frames follow depends on those before, so that stacks share their beginnings.
fn stack(n: u64) -> Vec<String> {
    let mut dice = Dice(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    dice.below(1);
    let depth = 12 + dice.below(40);
    let mut at = 0_u64;
    let mut frames = Vec::new();
    for level in 0..depth {
        // Few ways near the root, more towards the leaf, as in programs.
        let ways = if level % 4 == 0 { 3 } else { 1 };
        at = at * 7 + dice.below(ways) + 1;
        let names = [
            "std::vector::push_back",
            "handle_request",
            "tcp_sendmsg_locked",
            "parse",
        ];
        let name = names[(at % 4) as usize];
        frames.push(format!(
            "{name}_{:x}",
            at.wrapping_mul(0x2545_f491_4f6c_dd1d) >> (64 - FUNCTIONS)
        ));
    }
    frames
}

/// Which stack comes next: the square makes low numbers common.
fn next(dice: &mut Dice) -> u64 {
    let roll = dice.below(1 << 20);
    roll * roll / (1 << 20) * STACKS / (1 << 20)
}

/// Folded lines, many of them equal, as of many files one after the other.
pub(crate) fn folded(path: &Path, bytes: u64) -> io::Result<()> {
    let lines: Vec<String> = (0..STACKS)
        .map(|n| format!("server-{};{}", n % 8, stack(n).join(";")))
        .collect();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut dice = Dice(42);
    let mut written = 0;
    while written < bytes {
        let line = &lines[next(&mut dice) as usize];
        let value = 1 + dice.below(500);
        writeln!(out, "{line} {value}")?;
        written += line.len() as u64 + 4;
    }
    out.flush()
}

/// Events as `perf script` prints them.
pub(crate) fn perf(path: &Path, bytes: u64) -> io::Result<()> {
    let bodies: Vec<String> = (0..STACKS)
        .map(|n| {
            let frame = |(at, name): (usize, String)| {
                format!(
                    "\t{:16x} {name}+0x{at:x} (/usr/bin/server)\n",
                    0x40_0000 + at * 64
                )
            };
            stack(n).into_iter().enumerate().rev().map(frame).collect()
        })
        .collect();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut dice = Dice(43);
    let (mut written, mut micros) = (0, 0_u64);
    while written < bytes {
        let n = next(&mut dice);
        let body = &bodies[n as usize];
        micros += 101;
        let head = format!(
            "server-{} {}/{} [00{}] {}.{:06}:          1 cpu-clock: \n",
            n % 8,
            100 + n % 8,
            200 + n % 8,
            n % 4,
            1000 + micros / 1_000_000,
            micros % 1_000_000
        );
        writeln!(out, "{head}{body}")?;
        written += (head.len() + body.len()) as u64 + 1;
    }
    out.flush()
}
