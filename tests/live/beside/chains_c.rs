//! C programs, compiled and linked in every way that changes how frames are found.

use std::path::Path;

use crate::beside::chains::{Case, cases, compile, hold_to};
use crate::prelude::*;

const CALLS: &str = "
    START > main > nested_1 > nested_2 > nested_3
    START > main > recurse > recurse_end
    START > main > 30 recurse > recurse_end
    START > main > 120 recurse > recurse_end
    START > main > large_frame > large_leaf
    START > main > variable_frame > variable_leaf
    START > main > aligned_twice > aligned_frame > aligned_leaf
    START > main > ends_in_a_call > never_returns
    perhaps: START > main > storm
    cpu: START > main > storm > saves_registers
    cpu: START > main > storm > aligns
    THREAD > thread_begin > thread_leaf
";

const SIGNALS: &str = "
    START > main > raises_plain > signals_itself > SIGNAL > plain_handler > plain_leaf
    START > main > raises_alternate > signals_itself > SIGNAL > alternate_handler > alternate_leaf
    START > main > raises_nested > signals_itself > SIGNAL > outer_handler > SIGNAL > inner_handler
    START > main > raises_fault > faults_at_once > SIGNAL > fault_handler
    START > main > is_interrupted > computes > SIGNAL > timer_handler > timer_leaf
";

const LIBC: &str = "
    cpu: START > main > clock_caller > *clock_gettime > *clock_gettime@[vdso]
    START > main > sorts > .. > compare
    START > main > searches > *bsearch > finds
    START > main > only_once > .. > once_begin
    START > main > iterates > *dl_iterate_phdr > sees_object
    cpu: START > main > copies > *mem*
    cpu: START > main > measures > *strlen*
    asleep: START > main > sleeps > *nanosleep* > *nanosleep*
    asleep: THREAD > contends > wants_the_lock > ..
    asleep: THREAD > awaits > reads > *read*
    perhaps: START > main > begins_a_thread > ..
    asleep: START > main > begins_a_child > ..
    perhaps: THREAD > ..
";

/// How programs are compiled and linked.
#[cfg(target_arch = "x86_64")]
const VARIANTS: [(&str, &str); 10] = [
    ("O0", "-O0"),
    ("O0-static", "-O0 -static"),
    ("O2", "-O2 -fomit-frame-pointer"),
    ("O2-fp", "-O2 -fno-omit-frame-pointer"),
    ("O2-cet", "-O2 -fcf-protection=full -falign-functions=1"),
    ("O2-nopie", "-O2 -no-pie -fno-pie"),
    ("O2-static", "-O2 -static"),
    ("O2-static-pie", "-O2 -static-pie -fPIE"),
    ("O3-avx2", "-O3 -march=haswell -Wl,-z,now"),
    ("Os-lld", "-Os -fuse-ld=lld"),
];

/// An emulated machine compiles these: with and without frame pointers, and with signed return addresses, which a processor
/// without such takes for plain ones.
#[cfg(target_arch = "aarch64")]
const VARIANTS: [(&str, &str); 7] = [
    ("O0", "-O0"),
    ("O2", "-O2 -fomit-frame-pointer"),
    (
        "O2-fp",
        "-O2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer",
    ),
    ("O2-pac", "-O2 -mbranch-protection=standard"),
    (
        "O2-static-pac-leaf",
        "-O2 -static -mbranch-protection=pac-ret+leaf",
    ),
    (
        "O2-static-pie",
        "-O2 -static-pie -fPIE -fomit-frame-pointer",
    ),
    ("Os", "-Os -Wl,-z,now"),
];

fn all_variants(name: &str, chains: &str) {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let case = |(variant, flags): (&str, &str)| {
        let what = format!("{name}-{variant}");
        Case::new(&what, &build(dir.path(), &what, name, flags), chains)
    };
    let cases = cases(&VARIANTS, case);
    hold_to(cases, "--no-inline");
}

fn build(dir: &Path, what: &str, name: &str, flags: &str) -> std::path::PathBuf {
    compile("gcc", dir, what, &format!("{name}.c"), flags)
}

#[test]
fn calls_of_every_shape_are_whole() {
    all_variants("calls", CALLS);
}

#[test]
fn signals_lead_back_to_what_they_interrupted() {
    all_variants("signals", SIGNALS);
}

#[test]
fn chains_go_through_libc_and_into_it() {
    all_variants("libc", LIBC);
}
