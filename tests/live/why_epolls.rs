//! why against an event loop: it waits for who ended its epoll.

use serde_json::json;

use crate::prelude::*;
use crate::why::{ALL, assert_explained};

/// A loop that takes requests of a client, asks a database for each, and takes what a publisher sends unasked. These three are processes
/// of their own. The loop counts its sleeps by whom each was ended by.
const LOOP: &str = r#"
#include <arpa/inet.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define ROUNDS 200
#define ANSWER_NS 3000000
#define THINK_NS 2000000
#define NEWS_NS 7000000

static int loop, begun[2];

static int listening(struct sockaddr_in *at)
{
	socklen_t length = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (void *)at, length) || listen(fd, 1) || getsockname(fd, (void *)at, &length))
		_exit(3);
	return fd;
}

static int connected(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (void *)to, sizeof(*to)))
		_exit(4);
	return fd;
}

static void answer(int listener)
{
	int fd = accept(listener, NULL, NULL);
	char c;

	while (read(fd, &c, 1) == 1) {
		pause_ns(ANSWER_NS);
		put_byte(fd, c);
	}
}

static void publish(int listener)
{
	int fd = accept(listener, NULL, NULL);

	/* The loop says once what it wants. */
	take_byte(fd);
	take_byte(begun[0]);
	for (;;) {
		pause_ns(NEWS_NS);
		if (send(fd, "n", 1, MSG_NOSIGNAL) != 1)
			pause();
	}
}

static void ask(const struct sockaddr_in *to)
{
	int fd;

	take_byte(begun[0]);
	fd = connected(to);
	for (int i = 0; i < ROUNDS; i++) {
		put_byte(fd, '?');
		take_byte(fd);
		pause_ns(THINK_NS);
	}
	close(fd);
	pause();
}

static void apart(void (*work)(int), int fd)
{
	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	work(fd);
	pause();
}

static void watch(int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event))
		_exit(5);
}

struct ends {
	long waits;
	long long ns;
};

__attribute__((noinline)) static int next(struct ends ends[])
{
	long long begin = clock_ns(CLOCK_MONOTONIC), sleeps = sleeps_so_far();
	struct epoll_event event;

	if (epoll_wait(loop, &event, 1, -1) != 1)
		_exit(6);
	ends[event.data.fd].waits += sleeps_so_far() - sleeps;
	ends[event.data.fd].ns += clock_ns(CLOCK_MONOTONIC) - begin;
	return event.data.fd;
}

int main(void)
{
	static struct ends ends[64];
	struct sockaddr_in database = {}, news = {}, own = {};
	int databases = listening(&database), sources = listening(&news), owns = listening(&own);
	int asked, told, client = -1, fd;
	char c;

	if (pipe(begun))
		_exit(3);
	apart(answer, databases);
	apart(publish, sources);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ask(&own);
	}
	loop = epoll_create1(0);
	asked = connected(&database);
	told = connected(&news);
	put_byte(told, 's');
	watch(owns);
	watch(asked);
	watch(told);
	watch(eventfd(0, 0));
	ready();
	write(begun[1], "12", 2);
	for (;;) {
		fd = next(ends);
		if (fd == owns) {
			client = accept(owns, NULL, NULL);
			watch(client);
		} else if (fd == client && read(client, &c, 1) == 1) {
			put_byte(asked, c);
		} else if (fd == client) {
			break;
		} else {
			c = take_byte(fd);
			if (fd == asked)
				put_byte(client, c);
		}
	}
	say("{\"peer\": %d, \"waits\": %ld, \"ns\": %lld, \"news\": %ld}\n", ntohs(database.sin_port), ends[asked].waits, ends[asked].ns,
	    ends[told].waits);
	return finished();
}
"#;

#[test]
fn an_event_loop_waits_for_the_peer_that_answers_and_is_idle_otherwise() {
    let _machine = Machine::alone();
    let program = Program::c("loop", LOOP, "");
    let mut workload = program.start("");
    let (report, told) = reported("why", ALL, &mut workload);
    workload.finish();
    assert_explained(&report);
    let told = &told[0];
    let peer = json!(format!("127.0.0.1:{}", number(told, "peer")));
    let lines = list(&report, "lines").iter();
    let loops = lines.clone().filter(|line| line["kind"] == "epoll");
    let [line] = loops.collect::<Vec<_>>()[..] else {
        panic!("one line: {report:#}");
    };
    assert_eq!(line["place"], "next", "{line:#}");
    let answers = &list(line, "endpoints")[0];
    assert_eq!(answers["peer"], peer, "{line:#}");
    assert_within(
        "answers, ns",
        number(answers, "ns"),
        ..=number(told, "ns"),
        told,
    );
    let hidden = number(&report, "losses.out_of_order");
    let waits = number(told, "waits");
    // The publisher's first word may have been asked for, before anybody looked.
    let truth = waits.saturating_sub(hidden)..=waits + 1;
    assert_within("waits for answers", number(line, "waits"), truth, told);
    let news = number(told, "news");
    assert_within("news, which nobody asked for", news, 50..=1_000, told);
}
