//! A profile that anyone may have made, in any format: no panic, and whatever is read can be written and drawn.

#![no_main]

use std::io::sink;

use libfuzzer_sys::fuzz_target;
use profile::read::{ReadOptions, read};
use profile::write::{Format, write_recording};

fuzz_target!(|bytes: &[u8]| {
    let names_only = ReadOptions {
        names_only: true,
        ..ReadOptions::default()
    };
    let named = read(bytes, &names_only);
    let Ok(recording) = read(bytes, &ReadOptions::default()) else {
        assert!(named.is_err(), "what is forgotten makes nothing right");
        return;
    };
    let named = named.expect("what is forgotten makes nothing wrong");
    assert_eq!(named.total(), recording.total());
    for (_, format) in Format::ENDINGS {
        // As many events as samples.
        if format == Format::Perf && recording.total() > 1000 {
            continue;
        }
        write_recording(&recording, format, "", &mut sink()).expect("a sink takes everything");
    }
});
