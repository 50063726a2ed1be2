//! How large the tables of the named files are, and how long they took.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::fs::File;
use std::time::Instant;

use unwind::{Error, Image};

fn main() -> Result<(), Error> {
    println!("    rows  pages rules    bytes  read ms table ms  key ms unsup file");
    for path in std::env::args().skip(1) {
        let begin = Instant::now();
        let image = Image::read(&File::open(&path)?)?;
        let read = begin.elapsed();
        let (table, counts) = image.table()?;
        let made = begin.elapsed();
        image.content_key();
        let key = begin.elapsed() - made;
        println!(
            "{:8} {:6} {:5} {:8} {:8.1} {:8.1} {:7.1} {:5} {path}\n{counts:?}",
            table.rows.len(),
            table.pages.len(),
            table.rules.len(),
            table.size(),
            read.as_secs_f64() * 1e3,
            (made - read).as_secs_f64() * 1e3,
            key.as_secs_f64() * 1e3,
            counts.unsupported_rows,
        );
    }
    Ok(())
}
