//! Skeletons of the BPF programs, one module per tool; types come from the C side's BTF.

/// The generated skeleton of one tool, with the lints that generated code cannot meet switched off.
macro_rules! skeleton {
    ($name:ident, $about:literal) => {
        #[doc = $about]
        #[allow(
            missing_docs,
            unreachable_pub,
            clippy::all,
            clippy::undocumented_unsafe_blocks,
            clippy::unwrap_used,
            clippy::wildcard_imports,
            clippy::too_many_lines,
            clippy::redundant_closure_for_method_calls
        )]
        pub mod $name {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".skel.rs"));
        }
    };
}

skeleton!(offcputime, "Time off the CPU, by stack.");
skeleton!(profile, "Stacks of whoever is running when an event fires.");
skeleton!(runqlat, "Waits for a CPU.");
