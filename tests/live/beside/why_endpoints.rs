//! The files and connections that why's lines are for.

use crate::prelude::*;
use crate::why::{ALL, assert_explained};

/// A client of a TCP socket that it reads from, one of a Unix socket that it polls, a server whose client takes its time, and a file that
/// is written through. The others are a process of their own, and each answers after a while.
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
		pause_ns(NAP);
		if (write(fd, &c, 1) != 1)
			_exit(7);
	}
	return NULL;
}

static void *take_slowly(void *at)
{
	int fd = connected(at, sizeof(struct sockaddr_in));

	do
		pause_ns(NAP / 4);
	while (read(fd, block, sizeof(block)) > 0);
	return NULL;
}

static void ask(int fd)
{
	if (write(fd, "?", 1) != 1)
		_exit(7);
}

__attribute__((noinline)) static void await_reply(int fd)
{
	char c;

	if (read(fd, &c, 1) != 1)
		_exit(7);
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
		ask((long)fd);
		await_reply((long)fd);
	}
	return NULL;
}

static void *of_unix(void *fd)
{
	struct timespec pause = { .tv_nsec = NAP / 4 };
	char c;

	for (int i = 0; i < ROUNDS; i++) {
		/* Nothing waits further out: this is where the thread is at home, and not where it polls. */
		nanosleep(&pause, NULL);
		ask((long)fd);
		await_poll((long)fd);
		if (read((long)fd, &c, 1) != 1)
			_exit(7);
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
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, own = peer;
	struct sockaddr_un named = { .sun_family = AF_UNIX };
	int peers = listening((void *)&peer, sizeof(peer)), owns = listening((void *)&own, sizeof(own)), nameds;
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
		pthread_join(started(take_slowly, &own), NULL);
		pause();
	}
	fds[0] = connected((void *)&peer, sizeof(peer));
	fds[1] = connected((void *)&named, sizeof(named));
	fds[2] = accept(owns, NULL, NULL);
	fds[3] = file;
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

#[test]
fn waits_are_for_the_other_end_the_clients_or_the_file() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    // A file of the disk's, if there is one: elsewhere no write waits.
    let disk = tempfile::tempdir_in(".").expect("a directory");
    let path = |dir: &tempfile::TempDir, name: &str| {
        let dir = dir.path().canonicalize().expect("a path");
        dir.join(name).display().to_string()
    };
    let (socket, file) = (path(&dir, "socket"), path(&disk, "file"));
    let program = Program::c("waiters", WAITERS, "-pthread");
    let mut workload = program.started(&format!("{socket} {file}")[..]);
    let (report, told) = reported("why", ALL, &mut workload);
    workload.finish();
    assert_explained(&report);
    let port = |end: &str| number(&told[0], end);
    let peer = format!("127.0.0.1:{}", port("peer"));
    let tcp = serde_json::json!({ "peer": peer, "protocol": "tcp" });
    assert_for(&report, "await_reply", &tcp);
    let unix = serde_json::json!({ "peer": socket, "protocol": "unix" });
    assert_for(&report, "await_poll", &unix);
    let own = port("own").to_string();
    let clients = serde_json::json!({ "clients_of": own, "protocol": "tcp" });
    assert_for(&report, "send_all", &clients);
    assert_for(
        &report,
        "write_through",
        &serde_json::json!({ "file": file }),
    );
}
