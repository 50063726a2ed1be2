//! What the steps cost; prints figures: `cargo test --release --test symbolize -- --ignored --nocapture cost`.

use std::fs;
use std::time::Instant;

use trace::symbolize::Origin;

use crate::target::{Target, compile, now, symbolizer};

#[test]
#[ignore = "prints measurements"]
fn cost() {
    let all: Vec<u32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().to_str()?.parse().ok())
        .collect();
    let mut symbolizer = symbolizer();
    let begin = Instant::now();
    symbolizer.snapshot(all.iter().copied());
    eprintln!(
        "snapshot: {:.1} us per process of {}",
        us(begin) / all.len() as f64,
        all.len()
    );

    let dir = tempfile::tempdir().unwrap();
    let target = Target::start(&compile(dir.path(), "cost", &["-g"]));
    let hot = target.address(0);
    let stack: Vec<u64> = (0..30).map(|i| hot + i % 16).collect();
    let begin = Instant::now();
    symbolizer.poll();
    eprintln!("poll after one start: {:.1} us", us(begin));
    let begin = Instant::now();
    let locations = symbolizer.locate(target.tgid, now(), &stack);
    eprintln!("locate, first of a process: {:.1} us", us(begin));
    let begin = Instant::now();
    for _ in 0..1000 {
        symbolizer.locate(target.tgid, now(), &stack);
    }
    eprintln!(
        "locate, 30 frames, files open: {:.1} us",
        us(begin) / 1000.0
    );
    let begin = Instant::now();
    symbolizer.user(&locations);
    eprintln!("user, first of a file: {:.1} us", us(begin));
    let begin = Instant::now();
    for _ in 0..1000 {
        symbolizer.user(&locations);
    }
    eprintln!("user, 30 known frames: {:.2} us", us(begin) / 1000.0);
    let begin = Instant::now();
    symbolizer.kernel(&[0xffff_ffff_8100_0000], Origin::Tracepoint);
    eprintln!("kernel, first: {:.1} ms", us(begin) / 1000.0);
    let begin = Instant::now();
    for _ in 0..1000 {
        symbolizer.kernel(&[0xffff_ffff_8100_0000; 30], Origin::Tracepoint);
    }
    eprintln!("kernel, 30 known frames: {:.2} us", us(begin) / 1000.0);
    libc_names(&mut symbolizer);
}

/// Names 20,000 addresses of libc.
fn libc_names(symbolizer: &mut trace::symbolize::Symbolizer) {
    let code = libc::printf as *const () as u64;
    let ips: Vec<u64> = (0..20_000).map(|i| code + i * 16).collect();
    let begin = Instant::now();
    let locations = symbolizer.locate(std::process::id(), now(), &ips);
    eprintln!("locate, 20,000 frames: {:.1} ms", us(begin) / 1000.0);
    let begin = Instant::now();
    symbolizer.user(&locations);
    eprintln!(
        "user, 20,000 new frames of libc: {:.1} ms",
        us(begin) / 1000.0
    );
    eprintln!("{:?}", symbolizer.losses());
}

fn us(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e6
}
