//! Names and lengths as runqlat's programs tell them apart: patterns of names, and buckets of a histogram.

use fastrand::Rng;

use crate::asked::BUCKETS;
use crate::host::buckets::bucket;
use crate::host::{self, Host};
use crate::targets::{glob_of, matches};

const LETTERS: [u8; 4] = *b"ab\x7f\xff";

/// A name's bytes, of which 0 is the end, and what follows them in memory.
fn random_name(rng: &mut Rng) -> [u8; 32] {
    let mut name = [0; 32];
    for letter in &mut name {
        *letter = *rng.choice(&LETTERS).expect("some");
    }
    name[rng.usize(..32)] = 0;
    name
}

/// A pattern as the tool makes them: at most 30 characters, and no star behind a star.
fn random_pattern(rng: &mut Rng) -> Vec<u8> {
    let length = rng.usize(..31).min(rng.usize(..31));
    let stars = rng.u32(..4);
    let letters = (0..length).map(|_| {
        let any = [b'?', b'a', LETTERS[rng.usize(..4)]];
        match rng.u32(..8) < stars {
            true => b'*',
            false => *rng.choice(&any).expect("some"),
        }
    });
    let mut pattern: Vec<u8> = letters.collect();
    pattern.dedup_by(|next, last| *next == b'*' && *last == b'*');
    pattern
}

#[test]
fn names_match_the_patterns_that_take_them() {
    let object = host::compile("runqlat");
    let (host, mut rng) = (Host::load(&object), Rng::with_seed(1));
    let mut matched = 0;
    for _ in 0..20_000 {
        let pattern = random_pattern(&mut rng);
        let glob = glob_of(&pattern);
        for _ in 0..10 {
            let name = random_name(&mut rng);
            let length = name[..16].iter().take_while(|byte| **byte != 0).count();
            let is_taken = matches(&pattern, &name[..length]);
            let is_told = host.ask::<bool>("host_matches", (&glob, name.as_ptr()));
            assert_eq!(is_told, is_taken, "{pattern:?}, {name:?}");
            matched += u32::from(is_taken);
        }
    }
    assert!(matched > 10_000, "{matched}");
}

/// Lengths of 2^48 ns and more share the last bucket.
#[test]
fn lengths_have_their_buckets() {
    let object = host::compile("runqlat");
    let (host, mut rng) = (Host::load(&object), Rng::with_seed(1));
    let largest = (1 << 48) - 1;
    assert_eq!(bucket(largest), BUCKETS - 1);
    for _ in 0..200_000 {
        let near = (1_u64 << rng.u32(..64))
            .wrapping_add(rng.u64(..3))
            .wrapping_sub(1);
        let any = rng.u64(..) >> rng.u32(..64);
        for ns in [near, any] {
            let told = host.ask::<u32>("host_bucket_of", (ns,));
            assert_eq!(told, bucket(ns.min(largest)), "{ns}");
        }
    }
}
