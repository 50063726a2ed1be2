/* SPDX-License-Identifier: MIT */
/* java.bpf.h: the object of a Java virtual machine (HotSpot) that a thread waits for, and the thread that has it.
 *
 * Each thread of the machine sleeps on a word of its own, for monitors and for what java.util.concurrent is made of alike. It notes what
 * for: the monitor that it is about to enter in its JavaThread, any other object in Thread.parkBlocker. User space tells where.
 *
 * Objects move while garbage is collected, their classes do not. What is read of an object that has just moved is of no thread that lives,
 * or of the object's old place, which still says the same.
 */
#ifndef __JAVA_BPF_H__
#define __JAVA_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "futex_holder.bpf.h"
#include "futex_state.bpf.h"
#include "maps.bpf.h"

/* `class` of what Java waits for; `object` is the object's class then. A monitor has an address of its own, and so has a notice. So has
 * an object that lasts, as locks do; of others, which are made for a wait or two, that of the waiter's futex stands.
 */
#define LOCK_OF_SLEEP 0xf9
#define LOCK_OF_NOTICE 0xfa
#define LOCK_OF_MONITOR 0xfb
#define LOCK_OF_LASTING 0xfc
#define LOCK_OF_JAVA 0xfd

#define MAX_JAVAS 256
#define MAX_JAVA_THREADS 16384
#define MAX_JAVA_CLASSES 4096
/* Bits of an object's header below its class, where that is there. */
#define JAVA_CLASS_SHIFT 42

/* The place in which an object says of which class it is. */
enum java_class_place {
	JAVA_CLASS_WORD = 0,
	/* A number of four bytes stands for it. */
	JAVA_CLASS_NUMBER,
	/* The number is the upper part of the object's header. */
	JAVA_CLASS_IN_HEADER,
	/* Nobody knows where objects have what: monitors only are known. */
	JAVA_CLASS_UNKNOWN,
};

/* A process's machine. Places are bytes from the beginning of the structure, or of the object. */
struct java_machine {
	/* mm->start_stack: tells an address space from the one before exec. */
	__u64 space;
	/* These are added to references, and to classes' numbers. */
	__u64 object_base;
	__u64 class_base;
	/* The class AbstractOwnableSynchronizer; 0: nobody knows. */
	__u64 ownable;
	/* Bits of an object's address that are the same however it is referred to. */
	__u64 address_bits;
	/* JavaThread: its OSThread, its object, the monitor that it is about to enter, the one that it is notified by. */
	__u16 os_thread;
	__u16 thread_object;
	__u16 pending_monitor;
	__u16 waiting_monitor;
	/* OSThread: the thread's number. */
	__u16 thread_id;
	/* java.lang.Thread: what it is parked for, its JavaThread. */
	__u16 park_blocker;
	__u16 native_thread;
	/* AbstractOwnableSynchronizer: the thread that has it. */
	__u16 owner;
	/* Any object: its class; and a class: the second of its ancestors. */
	__u16 class_at;
	__u16 ancestor;
	/* ObjectMonitor: its object, and the JavaThread that has it. */
	__u16 monitor_object;
	__u16 monitor_owner;
	__u8 object_shift;
	__u8 class_shift;
	/* References are four bytes long. */
	__u8 has_short_references;
	/* enum java_class_place */
	__u8 class_place;
	/* The thread's object is behind a handle. */
	__u8 has_handles;
	/* A monitor has the number in Java of the thread that has it; before JDK 24, the address of its JavaThread. */
	__u8 has_numbers;
	/* References say how the collector (ZGC, generational) has seen them last. */
	__u8 has_colours;
	__u8 pad[1];
};

/* A thread's JavaThread, and what user space found it waiting for before tracing began. */
struct java_thread {
	__u64 address;
	/* Times that it had left a CPU by then; 0: it was not looked at. */
	__u64 switches;
	__u64 class;
	__u64 object;
	__u64 monitor;
	/* Number of the thread that has that, in the tool's PID namespace; 0: nobody, or it is not known. */
	__u32 owner;
	/* enum java_wait */
	__u32 wait;
};

struct java_thread_key {
	__u32 tgid;
	/* Number in its own PID namespace. */
	__u32 tid;
};

struct java_number_key {
	/* The thread's, in Java. */
	__u64 number;
	__u32 tgid;
	__u32 hole;
};

struct java_class_key {
	__u64 class;
	__u32 tgid;
	__u32 hole;
};

/* process → its machine, from user space */
MAP(HASH, java_machines, __u32, struct java_machine, MAX_JAVAS);

/* thread → its JavaThread, from user space */
MAP(LRU_HASH, java_threads, struct java_thread_key, struct java_thread, MAX_JAVA_THREADS);

/* thread by its number → its JavaThread, from user space */
MAP(LRU_HASH, java_numbers, struct java_number_key, __u64, MAX_JAVA_THREADS);

/* Classes of objects that were waited for, for user space to name while the process lives; whether they last, it says. */
MAP(LRU_HASH, java_classes, struct java_class_key, __u8, MAX_JAVA_CLASSES);

/* User space has told of any. */
__u32 has_javas = 0;

static __always_inline __u64 user_word(__u64 at)
{
	__u64 word = 0;

	return bpf_probe_read_user(&word, sizeof(word), (void *)at) ? 0 : word;
}

static __always_inline __u32 user_half(__u64 at)
{
	__u32 half = 0;

	return bpf_probe_read_user(&half, sizeof(half), (void *)at) ? 0 : half;
}

/* Behind an address are sixteen bits of the collector's. How many of them are no part of it, the one of the upper four that is set says
 * (zAddress.hpp of JDK 21).
 */
#define JAVA_COLOURS 0xf000

/* Address of the object that a long reference at `at` refers to; 0: none. */
static __always_inline __u64 java_long_reference(const struct java_machine *java, __u64 at)
{
	__u64 reference = user_word(at), colour = reference & JAVA_COLOURS;

	if (!java->has_colours || !colour)
		return reference;
	if (colour & 0x1000)
		return reference >> 13;
	if (colour & 0x2000)
		return reference >> 14;
	return colour & 0x4000 ? reference >> 15 : reference >> 16;
}

/* Address of the object that a field of another refers to; 0: none. */
static __always_inline __u64 java_reference(const struct java_machine *java, __u64 at)
{
	__u64 reference;

	if (!java->has_short_references)
		return java_long_reference(java, at);
	reference = user_half(at);
	return reference ? java->object_base + (reference << (java->object_shift & 7)) : 0;
}

static __always_inline __u64 java_class_of(const struct java_machine *java, __u64 object)
{
	__u64 number;

	if (!object || java->class_place == JAVA_CLASS_UNKNOWN)
		return 0;
	if (java->class_place == JAVA_CLASS_WORD)
		return user_word(object + java->class_at);
	if (java->class_place == JAVA_CLASS_IN_HEADER)
		number = user_word(object) >> JAVA_CLASS_SHIFT;
	else
		number = user_half(object + java->class_at);
	return number ? java->class_base + (number << (java->class_shift & 31)) : 0;
}

/* The number of a thread by its JavaThread; 0: it is none. */
static __always_inline __u32 java_tid(const struct java_machine *java, __u64 thread)
{
	__u64 os_thread = thread ? user_word(thread + java->os_thread) : 0;

	return os_thread ? user_half(os_thread + java->thread_id) : 0;
}

static __always_inline __u32 innermost_tid(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	struct upid upid = {};

	bpf_core_read(&upid, sizeof(upid), &pid->numbers[level]);
	return upid.nr;
}

/* A condition variable of glibc's, of which each thread of Java's has its own. The machine's own locks and safepoints are waited for with
 * FUTEX_WAIT and a number; so are old glibc's conditions, with 0.
 */
static __always_inline bool may_be_condition(const struct futex_call *call)
{
	bool is_one = call->operation == FUTEX_WAIT_BITSET || (call->operation == FUTEX_WAIT && !call->value);

	return is_one && !(call->flags & (FUTEX_IS_SHARED | FUTEX_IS_COMPAT));
}

/* The machine of a thread, which is current. */
static __always_inline const struct java_machine *java_of(struct task_struct *task, const struct futex_call *call, __u32 tgid)
{
	const struct java_machine *java;

	if (!has_javas || !may_be_condition(call))
		return NULL;
	java = bpf_map_lookup_elem(&java_machines, &tgid);
	return java && java->space == BPF_CORE_READ(task, mm, start_stack) ? java : NULL;
}

/* Notes what a thread says that it waits for: a monitor that it is about to enter, or is to be notified by, or what it is parked for. */
static __always_inline void read_java_wait(struct futex_wait *futex, const struct java_machine *java, __u64 thread)
{
	__u64 entered = user_word(thread + java->pending_monitor);
	__u64 monitor = entered ? entered : user_word(thread + java->waiting_monitor), object;

	if (monitor) {
		object = java_long_reference(java, user_word(monitor + java->monitor_object));
		futex->java = entered ? JAVA_MONITOR : JAVA_NOTICE;
	} else if (java->class_place == JAVA_CLASS_UNKNOWN) {
		return;
	} else {
		object = user_word(thread + java->thread_object);
		if (java->has_handles && object)
			object = java_long_reference(java, object);
		object = object ? java_reference(java, object + java->park_blocker) : 0;
		futex->java = object ? JAVA_BLOCKER : futex->call.flags & FUTEX_IS_TIMED ? JAVA_SLEEP : JAVA_UNKNOWN;
	}
	futex->java_monitor = monitor;
	futex->java_object = object;
	futex->java_class = java_class_of(java, object);
}

/* The JavaThread that has a monitor. */
static __always_inline __u64 monitor_owner(const struct java_machine *java, __u64 monitor, __u32 tgid)
{
	struct java_number_key thread = { .number = user_word(monitor + java->monitor_owner), .tgid = tgid };
	const __u64 *known;

	if (!java->has_numbers)
		return thread.number;
	known = bpf_map_lookup_elem(&java_numbers, &thread);
	return known ? *known : 0;
}

/* The JavaThread that has what a thread waits for, which is no notice; 0: nobody knows. */
static __always_inline __u64 java_owner(const struct futex_wait *futex, const struct java_machine *java, __u32 tgid)
{
	__u64 object;

	if (futex->java == JAVA_MONITOR)
		return monitor_owner(java, futex->java_monitor, tgid);
	if (!java->ownable || user_word(futex->java_class + java->ancestor) != java->ownable)
		return 0;
	object = java_reference(java, futex->java_object + java->owner);
	return object ? user_word(object + java->native_thread) : 0;
}

/* Called when a thread, which is current, begins to sleep. */
static __noinline void note_java(struct futex_wait *futex, struct task_struct *task)
{
	struct java_thread_key thread = { .tgid = tgid_of(targets.pid_namespace, task) };
	struct java_class_key class = { .tgid = thread.tgid };
	const struct java_machine *java;
	const struct java_thread *known;
	__u8 lasts = 0;

	java = java_of(task, &futex->call, thread.tgid);
	if (!java)
		return;
	thread.tid = innermost_tid(task);
	known = bpf_map_lookup_elem(&java_threads, &thread);
	/* Its number was another thread's before. */
	if (!known || java_tid(java, known->address) != thread.tid)
		return;
	read_java_wait(futex, java, known->address);
	if (futex->java > JAVA_NOTICE)
		futex->java_owner = java_owner(futex, java, thread.tgid);
	futex->java_object &= java->address_bits;
	class.class = futex->java_class;
	if (class.class && !bpf_map_lookup_elem(&java_classes, &class))
		bpf_map_update_elem(&java_classes, &class, &lasts, BPF_NOEXIST);
}

/* Tells which lock it is; `lock` is that of the futex. */
static __always_inline void identify_java(struct lock_id *lock, const struct futex_wait *futex)
{
	struct java_class_key class = { .class = futex->java_class, .tgid = lock->tgid };
	const __u8 *lasts;

	lock->object = futex->java_class;
	switch (futex->java) {
	case JAVA_SLEEP:
		lock->class = LOCK_OF_SLEEP;
		return;
	case JAVA_NOTICE:
	case JAVA_MONITOR:
		lock->class = futex->java == JAVA_NOTICE ? LOCK_OF_NOTICE : LOCK_OF_MONITOR;
		lock->address = futex->java_monitor;
		return;
	}
	lasts = bpf_map_lookup_elem(&java_classes, &class);
	lock->class = lasts && *lasts ? LOCK_OF_LASTING : LOCK_OF_JAVA;
	if (lock->class == LOCK_OF_LASTING)
		lock->address = futex->java_object;
}

/* The thread that has the lock as the waiter, which is current, leaves its CPU. */
static __noinline void find_java_holder(struct futex_wait *futex, struct task_struct *waiter)
{
	struct java_thread_key thread = { .tgid = tgid_of(targets.pid_namespace, waiter) };
	struct lock_holder *holder = &futex->wait.holder;
	const struct java_thread *known;
	const struct java_machine *java;

	__builtin_memset(&futex->evidence, 0, sizeof(futex->evidence));
	__builtin_memset(holder, 0, sizeof(*holder));
	futex->evidence.value = futex->call.value;
	java = java_of(waiter, &futex->call, thread.tgid);
	if (!java)
		return;
	thread.tid = java_tid(java, futex->java_owner);
	known = bpf_map_lookup_elem(&java_threads, &thread);
	if (!known || known->address != futex->java_owner)
		return;
	accept_holder(&futex->call, waiter, thread.tid, HOLDER_IN_WORD, holder);
}

/* The iterator's, which cannot read the thread's memory: what user space has found counts if the thread has slept since. */
static __noinline void java_found(struct futex_wait *futex, struct task_struct *task)
{
	struct java_thread_key thread = { .tgid = tgid_of(targets.pid_namespace, task) };
	const struct java_thread *known;

	if (!java_of(task, &futex->call, thread.tgid))
		return;
	thread.tid = innermost_tid(task);
	known = bpf_map_lookup_elem(&java_threads, &thread);
	if (!known || !known->switches || known->switches != BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw))
		return;
	futex->java_class = known->class;
	futex->java_object = known->object;
	futex->java_monitor = known->monitor;
	/* A thread that is parked for nothing sleeps only if that ends by itself. */
	futex->java = known->wait == JAVA_SLEEP && !(futex->call.flags & FUTEX_IS_TIMED) ? JAVA_UNKNOWN : known->wait;
	if (known->owner)
		accept_holder(&futex->call, task, known->owner, HOLDER_IN_WORD, &futex->wait.holder);
}

#endif
