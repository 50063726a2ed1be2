//! lockstat's search for the lock of a file that a thread waits for, on random lists of locks, against the rules of fcntl(2) and flock(2).

#[expect(dead_code, reason = "it has machines for tools, too")]
mod host;

use fastrand::Rng;

use host::Host;

/// Locks that are looked at.
const LISTED: usize = 128;
const READ: u64 = 0;
const WRITE: u64 = 1;

#[derive(Clone, Copy)]
struct Lock {
    is_flock: bool,
    file: u64,
    owner: u64,
    first: u64,
    last: u64,
    /// `-1` of whom nobody knows.
    pid: i32,
    kind: u64,
}

impl Lock {
    fn random(rng: &mut Rng) -> Self {
        let first = rng.u64(0..20);
        Self {
            is_flock: rng.bool(),
            file: rng.u64(0..4),
            owner: rng.u64(1..5),
            first,
            last: [first, first + rng.u64(0..5), i64::MAX as u64][rng.usize(0..3)],
            pid: [rng.i32(1..1000), -1][usize::from(rng.u32(0..5) == 0)],
            kind: rng.u64(READ..=WRITE),
        }
    }

    /// A writer shares with nobody, but for itself: an open file, where it is flock's, else an owner, on the bytes that both want.
    fn is_in_the_way_of(&self, wanted: &Self) -> bool {
        let bytes = |lock: &Self| lock.first..=lock.last;
        let meet = bytes(self).contains(&wanted.first) || bytes(wanted).contains(&self.first);
        let is_others = match wanted.is_flock {
            true => self.file != wanted.file,
            false => self.owner != wanted.owner && meet,
        };
        let is_of_sort = self.is_flock == wanted.is_flock;
        is_of_sort && is_others && self.kind.max(wanted.kind) == WRITE
    }
}

/// Twice the process of the first one in the way, and 1 if that reads.
fn in_the_way(locks: &[Lock], wanted: &Lock) -> u64 {
    let of_sort = locks.iter().filter(|lock| lock.is_flock == wanted.is_flock);
    let mut listed = of_sort.take(LISTED);
    let found = listed.find(|lock| lock.is_in_the_way_of(wanted));
    let known = found.filter(|lock| lock.pid > 0);
    known.map_or(0, |lock| {
        u64::from(lock.pid.cast_unsigned()) << 1 | u64::from(lock.kind == READ)
    })
}

fn play(host: &Host, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    host.tell("host_begin", (seed.is_multiple_of(2),));
    let most = [3, 12, 150][rng.usize(0..3)];
    let mut locks: Vec<Lock> = Vec::new();
    // Now and then the only one in the way is far behind.
    let is_quiet = rng.bool();
    for _ in 0..rng.usize(0..=most) {
        let mut lock = Lock::random(&mut rng);
        if is_quiet {
            (lock.kind, lock.is_flock) = (READ, true);
        }
        locks.push(lock);
    }
    for lock in &locks {
        let pid = i64::from(lock.pid).cast_unsigned();
        let all = [
            u64::from(lock.is_flock),
            lock.file,
            lock.owner,
            lock.first,
            lock.last,
            pid,
            lock.kind,
        ];
        host.tell("host_lock", (&all,));
    }
    for _ in 0..50 {
        let wanted = Lock::random(&mut rng);
        let how = u64::from(wanted.is_flock) | u64::from(wanted.kind == READ) << 1;
        let request = [wanted.file, wanted.owner, wanted.first, wanted.last, how];
        assert_eq!(
            host.ask::<u64>("host_in_the_way", (&request,)),
            in_the_way(&locks, &wanted),
            "seed {seed}"
        );
    }
    host.tell("host_never_locked", ());
    let request = [0_u64, 0, 0, 0, 1];
    assert_eq!(host.ask::<u64>("host_in_the_way", (&request,)), 0);
}

#[test]
fn the_first_lock_in_the_way_is_found() {
    let object = host::compile("lockstat_files");
    let host = Host::load(&object);
    for seed in 0..2_000 {
        play(&host, seed);
    }
}
