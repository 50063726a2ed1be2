//! Files that never answer: programs and perf maps on a file system whose server is there and silent.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use oracle::ticks::Ticks;

use crate::beside::lockstat_now::now;
use crate::c_program::{BURN, compile};
use crate::held::Held;
use crate::kernel::{skip, until};
use crate::prelude::*;
use crate::ticks::{assert_all_ticks, clock};

/// For the report, with one file system that does not answer.
const TO_REPORT: Duration = Duration::from_secs(2);

const HERTZ: u64 = 997;

/// Options of profile.
fn profiled() -> String {
    format!("-F {HERTZ}")
}

/// A directory, shown by a program that can be told to fall silent.
struct Served {
    server: Option<Workload>,
    dir: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        for name in ["files", "place"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        let server = Workload::start("fuse", ["files", "place"].map(|name| dir.path().join(name)));
        Self {
            server: Some(server),
            dir,
        }
    }

    /// A program there, as it is served; its argument is 500 ms.
    fn start(&self, name: &str, source: &str) -> Workload {
        compile(&self.dir.path().join("files"), name, source, "");
        let mut command = Command::new(self.dir.path().join("place").join(name));
        command.arg("500");
        Workload::spawn(name, command)
    }

    fn fall_silent(&mut self) {
        self.server.as_mut().expect("until it is dropped").go();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Its end is the end of all waiting.
        self.server = None;
        let place = self.dir.path().join("place");
        let _ = Command::new("umount").arg("-l").arg(place).status();
    }
}

fn can_serve() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        skip("needs /dev/fuse");
    }
    there
}

/// A tool's word of a program, how long it took from Ctrl-C on, and what clocks did meanwhile.
struct Found {
    report: Value,
    took: Duration,
    tid: u32,
    ticks: Ticks,
}

/// Traces a program's work.
fn trace(tool: &str, options: &str, load: &mut Workload) -> Found {
    let clock = clock(HERTZ);
    let args = format!("-j -v -p {} {options}", load.pid());
    let tool = Tool::attached(tool, args);
    load.work();
    let ticks = clock.take().expect("a whole log");
    let held = Held::by(tool.pid());
    let (output, took) = tool.finish_timed();
    let report = output.ok().report();
    // What waits for the file system holds nothing of the kernel's.
    Held {
        children: Default::default(),
        ..held
    }
    .assert_gone("a tool with a stuck child");
    Found {
        report,
        took,
        tid: load.pid(),
        ticks,
    }
}

/// Samples with and without a user frame that has this name.
fn samples(report: &Value, name: impl Fn(&str) -> bool) -> (u64, u64) {
    let is_named = |frame: &Value| frame["name"].as_str().is_some_and(&name);
    let named = |stack: &&Value| list(stack, "user").iter().any(is_named);
    let stacks = list(report, "stacks");
    let named = sum(stacks.iter().filter(named), "count");
    (named, sum(stacks, "count") - named)
}

/// Nearly all samples have such a name. They are as many as there were ticks.
fn assert_nearly_all(found: &Found, name: impl Fn(&str) -> bool) {
    let (named, others) = samples(&found.report, name);
    assert_all_ticks(named + others, &found.ticks, [found.tid].into_iter());
    assert_within("others", others, ..named / 10, &found.report);
}

#[test]
fn a_program_on_a_served_file_system_is_named() {
    let _machine = Machine::beside();
    if !can_serve() {
        return;
    }
    let served = Served::new();
    let mut load = served.start("served", BURN);
    let found = trace("profile", &profiled(), &mut load);
    assert_nearly_all(&found, |name| name == "hot");
    load.finish();
}

/// Each tool on a program whose file system is silent before it begins, and until it has reported.
fn of_silent_programs() -> [(&'static str, Found); 3] {
    ["profile", "offcputime", "lockstat"].map(|tool| {
        let mut served = Served::new();
        let mut load = served.start("stuck", BURN);
        served.fall_silent();
        let options = if tool == "profile" {
            profiled()
        } else {
            String::new()
        };
        let found = trace(tool, &options, &mut load);
        drop(served);
        load.finish();
        (tool, found)
    })
}

#[test]
fn a_program_whose_file_system_is_silent_is_known_by_offsets() {
    let _machine = Machine::beside();
    if !can_serve() {
        return;
    }
    let [(_, profile), ..] = of_silent_programs();
    assert_nearly_all(&profile, |name| name.starts_with("stuck+0x"));
}

#[test]
#[ignore = "statistical: make truth"]
fn reports_beside_a_silent_file_system_take_two_seconds() {
    let _machine = Machine::alone();
    if !can_serve() {
        return;
    }
    for (tool, found) in of_silent_programs() {
        assert_within(tool, found.took, ..=TO_REPORT, "for the report");
    }
    let took = of_a_silent_map().took;
    assert_within("the map", took, ..=TO_REPORT, "for the report");
    let (_, took, _) = of_a_silent_stack();
    assert_within("the stack", took, ..=TO_REPORT, "for the report");
}

/// Computes in memory that is no file's, for as many ms as its argument says.
const WITHOUT_FILE: &str = r#"
__attribute__((noinline, section(".text.alone"), aligned(4096))) static unsigned long turn(unsigned long x)
{
	for (int i = 0; i < 100000; i++)
		__asm__ volatile("" : "+r"(x));
	return x;
}
int main(int argc, char **argv)
{
	unsigned long (*code)(unsigned long) =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long long start, now, ns = atoll(argv[1]) * 1000000;

	memcpy(code, turn, 256);
	ready();
	start = now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	/* A turn takes 25 us at 4 GHz: stolen time is no work. */
	for (long long x = 1, n = 0; now < start + ns || n < ns / 25000; n++, now = clock_ns(CLOCK_THREAD_CPUTIME_ID))
		x = code(x);
	say("{\"burn_ns\": %lld}\n", now - start);
	return finished();
}
"#;

#[test]
fn a_perf_map_whose_file_system_is_silent_is_done_without() {
    let _machine = Machine::beside();
    if !can_serve() {
        return;
    }
    let found = of_a_silent_map();
    let all = samples(&found.report, |_| true);
    assert_all_ticks(all.0 + all.1, &found.ticks, [found.tid].into_iter());
    assert!(all.0 > 0, "{all:?}");
}

fn of_a_silent_map() -> Found {
    let mut served = Served::new();
    let program = Program::c_on_disk("without", WITHOUT_FILE, "");
    let place = served.dir.path().join("place");
    let mount = format!("mount --bind {} /tmp", place.display());
    let script = format!("{mount} && exec {} 500", program.text());
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let mut load = Workload::spawn("without", command);
    served.fall_silent();
    let found = trace("profile", &profiled(), &mut load);
    drop(served);
    load.finish();
    found
}

/// Sleeps beside a page of the file that its first argument names: with its "stack" there, or on a "futex" in the last word before
/// it, which looks like the beginning of a mutex. Without a file it sleeps as anybody.
const BESIDE: &str = r#"
#include <linux/futex.h>

/* read(0, byte, 1) with nothing but the page for a stack. */
static void rest_on(char *page)
{
	static char byte;
	long result = SYS_read;

	__asm__ volatile("mov %%rsp, %%r12\n\tmov %%rbp, %%r13\n\tmov %%rbx, %%rsp\n\tmov %%rbx, %%rbp\n\t"
			 "syscall\n\t"
			 "mov %%r12, %%rsp\n\tmov %%r13, %%rbp"
			 : "+a"(result)
			 : "b"(page), "D"(0L), "S"(&byte), "d"(1L)
			 : "rcx", "r11", "r12", "r13", "memory");
}
__attribute__((noinline)) static void rest(void)
{
	WITH_FRAME;
	await_go();
}
int main(int argc, char **argv)
{
	int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int *word = (unsigned int *)(pages + 4092);

	if (argc > 1 && mmap(pages + 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED)
		return 1;
	*word = 2;
	ready();
	say("{\"page\": %lu, \"word\": %lu}\ndone\n", (unsigned long)pages + 4096, (unsigned long)word);
	if (argc < 2)
		rest();
	else if (!strcmp(argv[2], "stack"))
		rest_on(pages + 4096);
	else
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 2, NULL);
	return 0;
}
"#;

/// A process that sleeps beside a silent file, in this way as `/proc` says, and another one that has none.
fn beside(served: &mut Served, way: &str) -> [Workload; 2] {
    let program = compile(served.dir.path(), "beside", BESIDE, "");
    fs::write(served.dir.path().join("files/page"), [0; 4096]).expect("a file");
    let (mut with, without) = (Command::new(&program), Command::new(&program));
    with.arg(served.dir.path().join("place/page")).arg(way);
    let mut loads = [with, without].map(|command| Workload::spawn("beside", command));
    served.fall_silent();
    for load in &mut loads {
        load.go();
    }
    let place = loads[0].results().remove(0);
    loads[1].results();
    let field = if way == "stack" { "page" } else { "word" };
    let address = format!("{:#x}", number(&place, field));
    let asleep = || {
        let call = fs::read_to_string(format!("/proc/{}/syscall", loads[0].pid()));
        call.is_ok_and(|call| call.contains(&address))
    };
    until("it sleeps", asleep);
    loads
}

#[test]
fn a_stack_in_a_silent_file_costs_that_process_its_stacks() {
    let _machine = Machine::beside();
    if !can_serve() {
        return;
    }
    let (report, _, [stuck, other]) = of_a_silent_stack();
    assert_eq!(report["losses"]["memory_hung"], 1, "{report}");
    let of = |pid: u32| {
        let own = list(&report, "stacks")
            .iter()
            .filter(move |stack| stack["pid"] == pid);
        own.flat_map(|stack| list(stack, "user"))
    };
    assert_eq!(of(stuck).count(), 1, "where it sleeps: {report}");
    assert!(of(other).any(|frame| frame["name"] == "rest"), "{report}");
}

/// The report, how long it took, and the processes that it is of.
fn of_a_silent_stack() -> (Value, Duration, [u32; 2]) {
    let mut served = Served::new();
    let loads = beside(&mut served, "stack");
    let [stuck, other] = loads.each_ref().map(Workload::pid);
    let tool = Tool::attached("offcputime", format!("-j -p {stuck},{other}"));
    let held = Held::by(tool.pid());
    let (output, took) = tool.finish_timed();
    let report = output.ok().report();
    held.assert_gone("a tool that met a silent stack");
    drop(served);
    (report, took, [stuck, other])
}

#[test]
fn a_lock_word_beside_a_silent_file_is_given_up() {
    let _machine = Machine::beside();
    if !can_serve() {
        return;
    }
    let mut served = Served::new();
    let loads = beside(&mut served, "futex");
    let report = now(loads[0].pid());
    assert_eq!(report["losses"]["memory_hung"], 1, "{report}");
    let invented = &report["waits"];
    assert_eq!(*invented, serde_json::json!([]));
    drop(served);
}
