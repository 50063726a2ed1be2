//! The shares that pressure computes itself, beside the kernel's own PSI, and times beside programs' clocks. The kernel folds its
//! CPUs into one figure by whole ticks: these agree to some per cent on a quiet machine, and are left to `make truth`.

use serde_json::Value;

use crate::cpu_times::{busy_elsewhere_ns, stolen_ns};
use crate::kernel::alone;
use crate::one_cpu::OneCpu;
use crate::pressure::{TOLERANCE, assert_close, party, short_of_memory, trace, unseen_ns};
use crate::shortages::{DISK, program};
use crate::slow_disk::SlowDisk;
use crate::workload::{Workload, number};

/// The emulated "some" of a load on CPU 0 is the kernel's, but for phases whose end was hidden, and for how much other CPUs weigh:
/// the kernel weighs them in whole ticks whenever anybody reads a pressure file, and who reads often makes their short turns vanish.
fn assert_as_psi_says(report: &Value, resource: &str, least_ns: u64) {
    let unseen = unseen_ns(report, resource);
    let elsewhere = busy_elsewhere_ns(0);
    let resource = &report["resources"][resource];
    let truth = number(resource, "psi.some.lost_ns");
    let found = number(resource, "emulated.some_ns");
    // Not all: something is to be left of the test on a busy machine.
    let elsewhere = elsewhere.min(truth / 4);
    assert!(
        truth >= least_ns,
        "too little pressure to compare: {truth} ns"
    );
    assert!(
        found.abs_diff(truth) <= (TOLERANCE * truth as f64) as u64 + unseen + elsewhere,
        "emulated {found} ns, PSI says {truth} ns; {unseen} ns hidden, {elsewhere} ns of other CPUs"
    );
    eprintln!("emulated {found} ns, PSI {truth} ns, hidden {unseen} ns, other CPUs {elsewhere} ns");
}

#[test]
#[ignore = "statistical: make truth"]
fn spinners_lose_and_cause_what_schedstat_says_and_some_is_psis() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::spinners(4, 3);
    let pid = workload.pid();
    let (report, results) = trace(&mut workload, &[]);
    assert_as_psi_says(&report, "cpu", 1_000_000_000);
    let total = |field: &str| {
        results
            .iter()
            .map(|thread| number(thread, field))
            .sum::<u64>()
    };
    let unseen = unseen_ns(&report, "cpu");
    let victim = party(&report, "cpu", "victims", pid);
    assert_eq!(
        number(victim, "threads"),
        5,
        "four spinners and who waits for them"
    );
    assert_close(
        number(victim, "lost_ns"),
        total("total.run_delay_ns"),
        unseen,
        "lost",
    );
    // While one of them runs the other three wait, and hardly anybody else does on that CPU. They wait, too, while a hypervisor has
    // it, which is nobody's time on a CPU.
    let stolen = 3 * stolen_ns();
    let culprit = party(&report, "cpu", "culprits", pid);
    let others: u64 = report["resources"]["cpu"]["victims"]
        .as_array()
        .expect("victims")
        .iter()
        .filter(|victim| victim["pid"] != pid)
        .map(|victim| number(victim, "lost_ns"))
        .sum();
    let (caused, least) = (number(culprit, "caused_ns"), 3 * total("total.oncpu_ns"));
    assert!(
        caused as f64 >= (1.0 - TOLERANCE) * least as f64 - unseen as f64
            && caused as f64
                <= (1.0 + TOLERANCE) * least as f64 + (others + unseen + stolen) as f64,
        "caused {caused} ns, 3 x time on the CPU is {least} ns, others lost {others} ns, {stolen} ns for what was stolen"
    );
    workload.finish();
}

#[test]
#[ignore = "statistical: make truth"]
fn fsyncs_are_pressure_on_the_disk_as_psi_says() {
    let Some(_machine) = alone() else {
        return;
    };
    let _one_cpu = OneCpu::new();
    let (mut workload, _dir) = program(DISK, "syncer", &["sync"]);
    let (report, _) = trace(&mut workload, &[]);
    // Of a file system with a journal the waits are mostly those of the journal's thread.
    assert_as_psi_says(&report, "io", 100_000_000);
    workload.finish();
}

#[test]
#[ignore = "statistical: make truth"]
fn cold_reads_of_a_slow_disk_lose_what_the_program_waited() {
    let Some(_machine) = alone() else {
        return;
    };
    let _one_cpu = OneCpu::new();
    let (mut workload, dir) = program(DISK, "reader", &["read"]);
    let pid = workload.pid();
    let slow = SlowDisk::new(pid, dir.path());
    let (report, results) = trace(&mut workload, &[]);
    drop(slow);
    assert_as_psi_says(&report, "io", 500_000_000);
    let program = &results[0];
    let waited =
        number(program, "wall_ns") - number(program, "cpu_ns") - number(program, "delay_ns");
    let victim = party(&report, "io", "victims", pid);
    assert_close(
        number(victim, "lost_ns"),
        waited,
        unseen_ns(&report, "io"),
        "lost to the disk",
    );
    workload.finish();
}

#[test]
#[ignore = "statistical: make truth"]
fn a_working_set_beyond_its_limit_is_pressure_on_memory_as_psi_says() {
    let Some(_machine) = alone() else {
        return;
    };
    let _one_cpu = OneCpu::new();
    let (report, _, _) = short_of_memory();
    assert_as_psi_says(&report, "memory", 100_000_000);
}
