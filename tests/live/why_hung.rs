//! why against a program that hangs: what its threads wait for began before anybody looked, and nobody ends it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::kernel::{states, until};
use crate::prelude::*;

/// Two threads wait for each other's mutex, four for an answer that their one peer owes them, one for its client, and one sleeps. The peer
/// is a process of its own.
const HUNG: &str = r#"
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>

static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static int has_journal, asked, served;

__attribute__((noinline)) static void *refund(void *unused)
{
	pthread_mutex_lock(&journal);
	__atomic_store_n(&has_journal, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&accounts);
	WITH_FRAME;
	return unused;
}

__attribute__((noinline)) static void transfer(void)
{
	pthread_mutex_lock(&journal);
	WITH_FRAME;
}

__attribute__((noinline)) static void *ask_by_poll(void *unused)
{
	struct pollfd one = { .fd = asked, .events = POLLIN };

	poll(&one, 1, -1);
	WITH_FRAME;
	return unused;
}

__attribute__((noinline)) static void *ask_by_select(void *unused)
{
	fd_set one;

	FD_ZERO(&one);
	FD_SET(asked, &one);
	/* Perl asks for as many as there is memory for. */
	select(64, &one, NULL, NULL, NULL);
	WITH_FRAME;
	return unused;
}

/* Another thread may wake it up, as libcurl's. */
__attribute__((noinline)) static void *ask_and_heed(void *unused)
{
	struct pollfd both[2] = { { .fd = asked, .events = POLLIN }, { .fd = eventfd(0, 0), .events = POLLIN } };

	poll(both, 2, -1);
	WITH_FRAME;
	return unused;
}

__attribute__((noinline)) static void *ask_by_epoll(void *unused)
{
	struct epoll_event event = { .events = EPOLLIN };
	int loop = epoll_create1(0);

	epoll_ctl(loop, EPOLL_CTL_ADD, asked, &event);
	epoll_ctl(loop, EPOLL_CTL_ADD, eventfd(0, 0), &event);
	epoll_wait(loop, &event, 1, -1);
	WITH_FRAME;
	return unused;
}

__attribute__((noinline)) static void *serve(void *unused)
{
	struct pollfd one = { .fd = served, .events = POLLIN };

	poll(&one, 1, -1);
	WITH_FRAME;
	return unused;
}

__attribute__((noinline)) static void *doze(void *unused)
{
	poll(NULL, 0, 600000);
	WITH_FRAME;
	return unused;
}

static void *leave(void *unused)
{
	await_go();
	_exit(0);
}

int main(void)
{
	void *(*all[])(void *) = { refund, ask_by_poll, ask_by_epoll, ask_by_select, ask_and_heed, serve, doze, leave };
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), peer = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t length = sizeof(at);
	pthread_t thread;

	if (bind(peer, (void *)&at, length) || listen(peer, 2) || getsockname(peer, (void *)&at, &length))
		_exit(3);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		accept(peer, NULL, NULL);
		for (;;)
			pause();
	}
	asked = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(asked, (void *)&at, length))
		_exit(4);
	ready();
	say("{\"peer\": %d}\n", ntohs(at.sin_port));
	/* Its client is itself. */
	at.sin_port = 0;
	if (bind(listener, (void *)&at, length) || listen(listener, 1) || getsockname(listener, (void *)&at, &length))
		_exit(5);
	if (connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&at, length) == 0)
		served = accept(listener, NULL, NULL);
	pthread_mutex_lock(&accounts);
	for (int i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (pthread_create(&thread, NULL, all[i], NULL))
			_exit(6);
	while (!__atomic_load_n(&has_journal, __ATOMIC_SEQ_CST))
		pause_ns(1000000);
	say("done\n");
	transfer();
	return 0;
}
"#;

/// A script is at rest; what it waits for is its child's to tell.
fn assert_leads_to_child(script: &str) {
    let _machine = Machine::alone();
    let mut shell = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh");
    // tail ends with its reader.
    let mut output = BufReader::new(shell.stdout.take().expect("a pipe"));
    let mut child = String::new();
    output.read_line(&mut child).expect("a line");
    let (pid, child) = (shell.id(), child.trim());
    until("it waits", || states(pid) == ['S']);
    let report = Tool::run("why", format!("-p {pid} 0.5")).stdout;
    let ended = Command::new("kill").arg(child).status();
    shell.wait().expect("it ends");
    assert!(ended.expect("kill").success());
    let next = format!("why -p {child} 10   # its child, which it waits for");
    assert!(report.contains(&next), "{report}");
}

#[test]
fn whoever_waits_for_a_hung_child_is_led_to_it() {
    assert_leads_to_child("sh -c 'echo $$; exec tail -f /dev/null'; true");
}

/// dash sleeps for a signal then.
#[test]
fn whoever_waits_for_a_child_of_before_is_led_to_it() {
    assert_leads_to_child("sh -c 'echo $$; exec tail -f /dev/null' & wait");
}

/// The kind and place of each line of waits, and its one lock, peer or `null`.
fn waits(report: &Value) -> Vec<(&str, &str, Value)> {
    let lines = list(report, "lines").iter();
    let waits = lines.filter(|line| line["place"].is_string());
    let mut waits: Vec<_> = waits
        .map(|line| {
            let peer = list(line, "endpoints").first().map(|one| &one["peer"]);
            let thing = peer.unwrap_or(&line["lock"]["name"]).clone();
            (text(line, "place"), text(line, "kind"), thing)
        })
        .collect();
    waits.sort_unstable_by_key(|(place, ..)| *place);
    waits
}

#[test]
fn what_a_program_hangs_on_is_named_though_it_began_before() {
    let _machine = Machine::alone();
    let program = Program::c("hung", HUNG, "-pthread");
    let mut workload = program.start("");
    let pid = workload.pid();
    workload.go();
    let told = workload.results();
    until("all sleep", || states(pid) == ['S'; 9]);
    let report = Tool::run("why", format!("-j -p {pid} 0.5")).report();
    workload.finish();
    let peer = json!(format!("127.0.0.1:{}", number(&told[0], "peer")));
    let [accounts, journal] =
        ["accounts", "journal"].map(|lock| json!(format!("mutex hung.bss: {lock}")));
    let expected = [
        ("ask_and_heed", "poll", peer.clone()),
        ("ask_by_epoll", "epoll", peer.clone()),
        ("ask_by_poll", "poll", peer.clone()),
        ("ask_by_select", "poll", peer),
        ("doze", "sleep", Value::Null),
        ("refund", "futex", accounts),
        ("transfer", "futex", journal),
    ];
    let mut waits = waits(&report);
    waits.retain(|(_, kind, _)| *kind != "pipe");
    assert_eq!(waits, expected, "{report:#}");
    // The one that waits for its client, all the time.
    let idle = list(&report, "lines")
        .iter()
        .filter(|line| line["kind"] == "idle");
    let idle_ns: u64 = idle.map(|line| number(line, "ns")).sum();
    let window_ns = number(&report, "duration_ns");
    assert_within("idle, ns", idle_ns, window_ns..=window_ns, &report);
}
