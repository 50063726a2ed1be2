//! What is said on stderr, beside results.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Says a line on stderr; takes what `format!` takes. Unlike `eprintln!` it does not end the program where nobody listens.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(::std::format_args!($($words)*))
    };
}

/// See [`say!`].
pub fn line(words: Arguments<'_>) {
    // In one piece, and whether or not it arrives: a closed terminal or a full disk is no reason to lose results.
    let _ = io::stderr().write_all(format!("{words}\n").as_bytes());
}
