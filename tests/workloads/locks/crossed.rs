//! Two threads take two of Rust's mutexes, each the other's second; `spare`: one more thread, that may have anything.

use std::io::Read;
use std::sync::{Arc, Barrier, Mutex};
fn take_second(lock: &Mutex<u64>) -> u64 { *lock.lock().unwrap() }
fn main() {
    println!("ready {}", std::process::id());
    let mut go = [0; 3];
    std::io::stdin().read_exact(&mut go).unwrap();
    let locks = Arc::new([Mutex::new(1_u64), Mutex::new(2)]);
    let barrier = Arc::new(Barrier::new(2));
    let threads: Vec<_> = (0..2)
        .map(|i| {
            let (locks, barrier) = (Arc::clone(&locks), Arc::clone(&barrier));
            std::thread::spawn(move || {
                let first = locks[i].lock().unwrap();
                barrier.wait();
                *first + take_second(&locks[1 - i])
            })
        })
        .collect();
    if std::env::args().nth(1).as_deref() == Some("spare") {
        std::thread::spawn(|| loop { std::thread::sleep(std::time::Duration::from_secs(3600)) });
    }
    println!("done");
    for thread in threads { thread.join().unwrap(); }
}
