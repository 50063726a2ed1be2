//! The files and connections that why's lines are for.

use serde_json::json;
use tempfile::TempDir;

use crate::prelude::*;
use crate::why::{ALL, assert_explained};

/// A client of a TCP socket that it reads from, one of a Unix socket that it polls, a server whose client takes its time, and a file that
/// is written through. The others are a process of their own, and each answers after a while. Or it asks two peers in turns, of which one
/// answers at once and is asked nine times in ten.
const WAITERS: &str = r#"
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ROUNDS 20
#define NAP 20000000
#define BLOCK (256 << 10)

static char block[BLOCK];

static int listening(struct sockaddr *at, socklen_t length)
{
	int fd = socket(at->sa_family, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, at, length) || listen(fd, 1) || getsockname(fd, at, &length))
		_exit(3);
	return fd;
}

static int connected(const struct sockaddr *to, socklen_t length)
{
	int fd = socket(to->sa_family, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, to, length))
		_exit(4);
	return fd;
}

static void *answer(void *listener)
{
	int fd = accept((long)listener, NULL, NULL);
	char c;

	while (read(fd, &c, 1) == 1) {
		if (c != '!')
			pause_ns(c == '?' ? NAP : 10 * NAP);
		put_byte(fd, c);
	}
	return NULL;
}

/* A block fits into no buffer on its way: whoever sends it waits. */
static void hold_little(int fd)
{
	int bytes = BLOCK / 16;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) || setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)))
		_exit(8);
}

static void *take_slowly(void *at)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	hold_little(fd);
	if (connect(fd, at, sizeof(struct sockaddr_in)))
		_exit(4);

	do
		pause_ns(NAP / 4);
	while (read(fd, block, sizeof(block)) > 0);
	return NULL;
}

__attribute__((noinline)) static void await_reply(int fd)
{
	take_byte(fd);
	WITH_FRAME;
}

__attribute__((noinline)) static void await_poll(int fd)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };

	if (poll(&one, 1, -1) != 1)
		_exit(7);
	WITH_FRAME;
}

__attribute__((noinline)) static void send_all(int fd)
{
	if (write(fd, block, sizeof(block)) != sizeof(block))
		_exit(7);
	WITH_FRAME;
}

__attribute__((noinline)) static void write_through(int fd)
{
	if (pwrite(fd, block, sizeof(block), 0) != sizeof(block) || fdatasync(fd))
		_exit(7);
	WITH_FRAME;
}

static void *of_tcp(void *fd)
{
	for (int i = 0; i < ROUNDS; i++) {
		put_byte((long)fd, '?');
		await_reply((long)fd);
	}
	return NULL;
}

__attribute__((noinline)) void handle(int fd, char how)
{
	put_byte(fd, how);
	await_reply(fd);
	WITH_FRAME;
}

static void *of_unix(void *fd)
{
	struct timespec pause = { .tv_nsec = NAP / 4 };

	for (int i = 0; i < ROUNDS; i++) {
		/* Nothing waits further out: this is where the thread is at home, and not where it polls. */
		nanosleep(&pause, NULL);
		put_byte((long)fd, '?');
		await_poll((long)fd);
		take_byte((long)fd);
	}
	return NULL;
}

static void *of_client(void *fd)
{
	for (int i = 0; i < 4 * ROUNDS; i++)
		send_all((long)fd);
	return NULL;
}

static void *of_file(void *fd)
{
	for (int i = 0; i < ROUNDS; i++)
		write_through((long)fd);
	return NULL;
}

static pthread_t started(void *(*run)(void *), void *with)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, with))
		_exit(5);
	return thread;
}

int main(int argc, char **argv)
{
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, own = peer, soon = peer;
	struct sockaddr_un named = { .sun_family = AF_UNIX };
	int peers = listening((void *)&peer, sizeof(peer)), owns = listening((void *)&own, sizeof(own));
	int soons = listening((void *)&soon, sizeof(soon)), nameds;
	int file = open(argv[2], O_RDWR | O_CREAT, 0600);
	void *(*all[])(void *) = { of_tcp, of_unix, of_client, of_file };
	pthread_t threads[4];
	long fds[4];

	strcpy(named.sun_path, argv[1]);
	nameds = listening((void *)&named, sizeof(named));
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		started(answer, (void *)(long)peers);
		started(answer, (void *)(long)nameds);
		started(answer, (void *)(long)soons);
		pthread_join(started(take_slowly, &own), NULL);
		pause();
	}
	fds[0] = connected((void *)&peer, sizeof(peer));
	fds[1] = connected((void *)&named, sizeof(named));
	fds[2] = accept(owns, NULL, NULL);
	hold_little(fds[2]);
	fds[3] = file;
	if (argc > 3) {
		int at_once = connected((void *)&soon, sizeof(soon));

		long long longest = 0;

		ready();
		for (int i = 0; i < 5 * ROUNDS; i++) {
			long long begin = clock_ns(CLOCK_MONOTONIC), taken;

			i % 10 ? handle(at_once, '!') : handle(fds[0], '.');
			taken = clock_ns(CLOCK_MONOTONIC) - begin;
			if (i % 10 && taken > longest)
				longest = taken;
		}
		say("{\"peer\": %d, \"longest_at_once\": %lld}\n", ntohs(peer.sin_port), longest);
		return finished();
	}
	ready();
	for (int i = 0; i < 4; i++)
		threads[i] = started(all[i], (void *)fds[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	say("{\"peer\": %d, \"own\": %d}\n", ntohs(peer.sin_port), ntohs(own.sin_port));
	return finished();
}
"#;

/// All waits in a function are for one endpoint.
fn assert_for(report: &Value, place: &str, endpoint: &Value) {
    let is_there = |line: &&Value| line["place"].as_str() == Some(place);
    let lines: Vec<&Value> = list(report, "lines").iter().filter(is_there).collect();
    assert!(!lines.is_empty(), "{place}: {report:#}");
    for line in lines {
        let mut only = only(line, "endpoints").clone();
        let ns = only.as_object_mut().and_then(|only| only.remove("ns"));
        assert_eq!(only, *endpoint, "{line:#}");
        assert_eq!(ns.as_ref(), Some(&line["ns"]), "{line:#}");
    }
}

/// Directories of a socket and of a file: this is on a disk, if there is one, for elsewhere no write waits.
fn places() -> [TempDir; 2] {
    [tempfile::tempdir(), tempfile::tempdir_in(".")].map(|dir| dir.expect("a directory"))
}

fn path(dir: &TempDir) -> String {
    let dir = dir.path().canonicalize().expect("a path");
    dir.join("it").display().to_string()
}

/// A TCP peer on this machine, as the program tells its port.
fn peer(told: &[Value]) -> Value {
    let address = format!("127.0.0.1:{}", number(&told[0], "peer"));
    json!({ "peer": address, "protocol": "tcp" })
}

#[test]
fn waits_are_for_the_other_end_the_clients_or_the_file() {
    let _machine = Machine::beside();
    let places = places();
    let [socket, file] = places.each_ref().map(path);
    let program = Program::c("waiters", WAITERS, "-pthread");
    let mut workload = program.started(&format!("{socket} {file}")[..]);
    let (report, told) = reported("why", ALL, &mut workload);
    workload.finish();
    assert_explained(&report);
    assert_for(&report, "await_reply", &peer(&told));
    let unix = json!({ "peer": socket, "protocol": "unix" });
    assert_for(&report, "await_poll", &unix);
    let own = number(&told[0], "own").to_string();
    let clients = json!({ "clients_of": own, "protocol": "tcp" });
    assert_for(&report, "send_all", &clients);
    let file = json!({ "file": file });
    assert_for(&report, "write_through", &file);
}

#[test]
fn the_slowest_say_which_peer_they_waited_for() {
    let _machine = Machine::beside();
    let places = places();
    let [socket, file] = places.each_ref().map(path);
    let program = Program::c("waiters", WAITERS, "-pthread");
    let mut workload = program.started(&format!("{socket} {file} asks")[..]);
    // Ten of a hundred, and some where a sandbox hides others.
    let options = format!("--slowest 12% --from uprobe:handle {ALL}");
    let (report, told) = reported("why", &options, &mut workload);
    workload.finish();
    let cycles = &report["cycles"];
    let waits = |line: &&Value| line["place"].as_str() == Some("await_reply");
    let line = list(cycles, "lines").iter().find(waits);
    let line = line.unwrap_or_else(|| panic!("{cycles:#}"));
    let endpoint = &line["endpoint"];
    let share = |group: &str| endpoint[group].as_f64().expect("a share");
    // Two more than the slow ones are in the group, or four, and took no longer than the longest that was answered at once.
    let count = number(cycles, "slowest.count");
    let others_ns = count.saturating_sub(8) * number(&told[0], "longest_at_once");
    let least = 1.0 - others_ns as f64 / (count * number(line, "slowest_ns")) as f64;
    assert_within("slowest", share("slowest_share"), least..=1.0, cycles);
    assert_within("others", share("others_share"), 0.0..=0.01, cycles);
    let slow = peer(&told);
    assert_eq!(endpoint["peer"], slow["peer"], "{cycles:#}");
    for cycle in list(&cycles["slowest"], "cycles") {
        assert_eq!(list(cycle, "lines")[0]["endpoint"], slow, "{cycles:#}");
    }
}
