//! Files that never answer: programs and perf maps on a file system whose server is there and silent.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::c_program::{BURN, compile};
use crate::held::Held;
use crate::kernel::{alone, skip};
use crate::tool::Tool;
use crate::workload::{Workload, number};

/// For the report, with one file system that does not answer.
const TO_REPORT: Duration = Duration::from_secs(2);

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
        let path = |name| dir.path().join(name).to_str().expect("plain").to_owned();
        let server = Workload::start("fuse", &[&path("files"), &path("place")]);
        Self {
            server: Some(server),
            dir,
        }
    }

    /// A program there, as it is served.
    fn program(&self, name: &str, source: &str) -> std::path::PathBuf {
        compile(&self.dir.path().join("files"), name, source, &[]);
        self.dir.path().join("place").join(name)
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

/// Traces a program's work; how long the tool took from Ctrl-C on.
fn trace(tool: &str, options: &[&str], load: &mut Workload) -> (Value, Duration) {
    let pid = load.pid().to_string();
    let tool = Tool::start(tool, &[&["-j", "-v", "-p", &pid], options].concat());
    tool.wait_attached();
    load.go();
    load.results();
    let held = Held::by(tool.pid());
    let (output, took) = tool.finish_timed();
    assert_eq!(output.code, 0, "{}", output.stderr);
    // What waits for the file system holds nothing of the kernel's.
    Held {
        children: Default::default(),
        ..held
    }
    .assert_gone("a tool with a stuck child");
    (output.report(), took)
}

/// Samples with and without a user frame that has this name.
fn samples(report: &Value, name: impl Fn(&str) -> bool) -> (u64, u64) {
    let mut found = (0, 0);
    for stack in report["stacks"].as_array().expect("stacks") {
        let frames = stack["user"].as_array().expect("frames").iter();
        let mut names = frames.filter_map(|frame| frame["name"].as_str());
        let count = number(stack, "count");
        if names.any(&name) {
            found.0 += count;
        } else {
            found.1 += count;
        }
    }
    found
}

#[test]
fn a_program_on_a_served_file_system_is_named() {
    let Some(_machine) = alone().filter(|_| can_serve()) else {
        return;
    };
    let served = Served::new();
    let program = served.program("served", BURN);
    let mut command = Command::new(program);
    command.arg("500");
    let (mut load, _) = Workload::spawn("served", command);
    let (report, _) = trace("profile", &["-F", "997"], &mut load);
    let (named, others) = samples(&report, |name| name == "hot");
    assert!(named > 300 && others < named / 10, "{named} and {others}");
    load.finish();
}

#[test]
fn a_program_whose_file_system_is_silent_is_known_by_offsets() {
    let Some(_machine) = alone().filter(|_| can_serve()) else {
        return;
    };
    for tool in ["profile", "offcputime", "lockstat"] {
        let mut served = Served::new();
        let program = served.program("stuck", BURN);
        let mut command = Command::new(program);
        command.arg("500");
        let (mut load, _) = Workload::spawn("stuck", command);
        served.fall_silent();
        let options: &[&str] = if tool == "profile" {
            &["-F", "997"]
        } else {
            &[]
        };
        let (report, took) = trace(tool, options, &mut load);
        eprintln!("{tool}: the report after {took:?}");
        assert!(took <= TO_REPORT, "{tool}: {took:?}");
        if tool == "profile" {
            let (placed, others) = samples(&report, |name| name.starts_with("stuck+0x"));
            assert!(
                placed > 300 && others < placed / 10,
                "{placed} and {others}"
            );
        }
        drop(served);
        load.finish();
    }
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
	for (unsigned long x = 1; now < start + ns; now = clock_ns(CLOCK_THREAD_CPUTIME_ID))
		x = code(x);
	say("{\"burn_ns\": %lld}\ndone\n", now - start);
	await_go();
	return 0;
}
"#;

#[test]
fn a_perf_map_whose_file_system_is_silent_is_done_without() {
    let Some(_machine) = alone().filter(|_| can_serve()) else {
        return;
    };
    let mut served = Served::new();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let program = compile(dir.path(), "without", WITHOUT_FILE, &[]);
    let place = served.dir.path().join("place");
    let script = format!(
        "mount --bind {} /tmp && exec {} 500",
        place.display(),
        program.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let (mut load, _) = Workload::spawn("without", command);
    served.fall_silent();
    let (report, took) = trace("profile", &["-F", "997"], &mut load);
    eprintln!("the report after {took:?}");
    assert!(took <= TO_REPORT, "{took:?}");
    let all = samples(&report, |_| true);
    assert!(all.0 > 300, "{all:?}");
    drop(served);
    load.finish();
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
    let program = compile(served.dir.path(), "beside", BESIDE, &[]);
    fs::write(served.dir.path().join("files/page"), [0; 4096]).expect("a file");
    let (mut with, without) = (Command::new(&program), Command::new(&program));
    with.arg(served.dir.path().join("place/page")).arg(way);
    let mut loads = [with, without].map(|command| Workload::spawn("beside", command).0);
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
    let give_up = Instant::now() + Duration::from_secs(60);
    while !asleep() {
        assert!(Instant::now() < give_up, "it does not go to sleep");
        std::thread::yield_now();
    }
    loads
}

#[test]
fn a_stack_in_a_silent_file_costs_that_process_its_stacks() {
    let Some(_machine) = alone().filter(|_| can_serve()) else {
        return;
    };
    let mut served = Served::new();
    let loads = beside(&mut served, "stack");
    let [stuck, other] = loads.each_ref().map(Workload::pid);
    let tool = Tool::start("offcputime", &["-j", "-p", &format!("{stuck},{other}")]);
    tool.wait_attached();
    let held = Held::by(tool.pid());
    let (output, took) = tool.finish_timed();
    eprintln!("the report after {took:?}");
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(took <= TO_REPORT, "{took:?}");
    held.assert_gone("a tool that met a silent stack");
    let report = output.report();
    assert_eq!(report["losses"]["memory_hung"], 1, "{report}");
    let stacks = report["stacks"].as_array().expect("stacks");
    let of = |pid: u32| -> Vec<&Value> {
        let stacks = stacks.iter();
        let stacks = stacks.filter(|stack| number(stack, "pid") == u64::from(pid));
        let frames = stacks.map(|stack| stack["user"].as_array().expect("frames"));
        frames.flatten().collect()
    };
    assert_eq!(of(stuck).len(), 1, "where it sleeps: {report}");
    assert!(
        of(other).iter().any(|frame| frame["name"] == "rest"),
        "{report}"
    );
    drop(served);
}

#[test]
fn a_lock_word_beside_a_silent_file_is_given_up() {
    let Some(_machine) = alone().filter(|_| can_serve()) else {
        return;
    };
    let mut served = Served::new();
    let loads = beside(&mut served, "futex");
    let pid = loads[0].pid().to_string();
    let output = Tool::start("lockstat", &["--now", "-j", "-p", &pid]).finish();
    let report = output.report();
    assert_eq!(report["losses"]["memory_hung"], 1, "{report}");
    assert_eq!(
        report["waits"],
        serde_json::json!([]),
        "nothing is invented"
    );
    drop(served);
}
