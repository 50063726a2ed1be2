//! More threads than the kernel's buffer of what an iterator tells of them has room for.

use crate::prelude::*;

/// Two thousand threads that touch a page each when the word comes, and sleep before and after; so does the first one.
const CROWD: &str = r#"
#include <pthread.h>

#define THREADS 2003
#define PAGE 4096
static volatile char *pages;
static pthread_barrier_t begin;
static long done;

static void *touch(void *page)
{
	pthread_barrier_wait(&begin);
	*(volatile char *)page = 1;
	__atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
	return NULL;
}

int main(void)
{
	pthread_attr_t small;
	pthread_t thread;

	pages = mmap(NULL, (THREADS + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* A huge page would be one thread's. */
	if (pages == MAP_FAILED || madvise((void *)pages, (THREADS + 1) * PAGE, MADV_NOHUGEPAGE))
		_exit(2);
	pthread_barrier_init(&begin, NULL, THREADS + 1);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread, &small, touch, (void *)(pages + i * PAGE)))
			_exit(3);
	ready();
	pages[THREADS * PAGE] = 1;
	pthread_barrier_wait(&begin);
	while (__atomic_load_n(&done, __ATOMIC_SEQ_CST) < THREADS)
		usleep(1000);
	say("{}\n");
	return finished();
}
"#;

#[test]
fn each_of_thousands_of_threads_is_in_pressures_account() {
    let _machine = Machine::beside();
    let mut crowd = Program::c("crowd", CROWD, "-pthread").started("");
    let (report, _) = reported("pressure", "", &mut crowd);
    let victims = list(&report["resources"]["cpu"], "victims").iter();
    let mut own = victims.filter(|party| party["pid"] == crowd.pid());
    let own = own.next().expect("who was woken waited for a CPU");
    assert_eq!(number(own, "threads"), 2004, "{own}");
    crowd.finish();
}
