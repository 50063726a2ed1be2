/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* biolatency.c: biolatency's programs on this machine, and what a test asks of them; kernels of several ages have different fields. */
#include "vmlinux.h"
#include "host.h"
#include <bpf/bpf_core_read.h>

static bool host_has(const char *what);
static void *host_slow_reserve(const void *ring, __u64 bytes, __u64 flags);

#undef bpf_core_field_exists
#undef bpf_core_type_exists
#undef bpf_core_enum_value_exists
#define bpf_core_field_exists(field) host_has(#field)
#define bpf_core_type_exists(type) host_has(#type)
#define bpf_core_enum_value_exists(type, value) host_has(#value)
#undef bpf_ringbuf_reserve
#undef bpf_ringbuf_submit
#define bpf_ringbuf_reserve(map, bytes, flags) host_slow_reserve(map, bytes, flags)
#define bpf_ringbuf_submit(slow, flags) (host_slow_is_sent = true)
static bool host_slow_is_full, host_slow_is_sent;

#include "../biolatency/biolatency.bpf.c"

/* Age of the kernel: 510 is 5.10. */
__u32 host_age;

static bool host_has(const char *what)
{
	if (!__builtin_strcmp(what, "struct hd_struct"))
		return host_age < 511;
	if (!__builtin_strcmp(what, "rq->bio->bi_bdev"))
		return host_age >= 512;
	if (!__builtin_strcmp(what, "old->rq_disk"))
		return host_age < 517;
	if (!__builtin_strcmp(what, "REQ_OP_ZONE_APPEND"))
		return host_age >= 600;
	return true;
}

static struct slow_io host_slow;

static void *host_slow_reserve(const void *ring, __u64 bytes, __u64 flags)
{
	/* Memory of a ring has been used before. */
	__builtin_memset(&host_slow, 0xff, sizeof(host_slow));
	return host_slow_is_full || ring != &slow_ios || bytes != sizeof(host_slow) || flags ? NULL : &host_slow;
}

/* The slow request of the last event, once. */
bool host_take_slow(struct slow_io *to)
{
	bool is_sent = host_slow_is_sent;

	*to = host_slow;
	host_slow_is_sent = false;
	return is_sent;
}

void host_fill_ring(bool is_full)
{
	host_slow_is_full = is_full;
}

void host_want(__u32 dev)
{
	__u8 wanted = 1;

	bpf_map_update_elem(&wanted_devs, &dev, &wanted, BPF_ANY);
}

void host_window(__u64 start_ns, __u64 end_ns, __u32 half)
{
	window_start_ns = start_ns;
	window_end_ns = end_ns;
	epoch = half;
}

struct task_struct *host_thread(__u32 tid, __u32 flags, struct task_struct *leader, char name)
{
	struct task_struct *task = host_make_task(sizeof(*task));

	task->group_leader = leader ?: task;
	task->real_parent = task;
	task->pid = tid;
	task->tgid = task->group_leader->pid;
	task->flags = flags;
	task->comm[0] = name;
	return task;
}

struct host_disk {
	struct gendisk disk;
	struct request_queue queue;
};

struct host_disk *host_disk(__u32 major, __u32 minor, char name)
{
	struct host_disk *disk = host_make_task(sizeof(*disk));

	disk->disk.major = major;
	disk->disk.first_minor = minor;
	disk->disk.disk_name[0] = name;
	disk->queue.disk = &disk->disk;
	return disk;
}

void host_set_queue(struct host_disk *disk, __u64 flags)
{
	disk->queue.queue_flags = flags;
}

#define HOST_LEVELS 32

/* A cgroup below the root of its own; 0: what is read where there is none. */
struct cgroup *host_cgroup(struct cgroup *parent, __u64 id)
{
	struct cgroup *cgroup = host_make_task(sizeof(*cgroup) + HOST_LEVELS * sizeof(cgroup->ancestors[0]));

	cgroup->kn = host_make_task(sizeof(*cgroup->kn));
	cgroup->kn->id = id;
	if (!id)
		return cgroup;
	cgroup->level = parent ? parent->level + 1 : 0;
	for (int level = 0; level < cgroup->level; level++)
		cgroup->ancestors[level] = parent->ancestors[level];
	cgroup->ancestors[cgroup->level] = cgroup;
	return cgroup;
}

struct host_bio {
	struct bio bio;
	struct block_device device;
	struct blkcg_gq group;
	struct blkcg owner;
};

struct bio *host_bio(void)
{
	return host_make_task(sizeof(struct host_bio));
}

void host_dress_bio(struct host_bio *bio, __u32 dev, struct cgroup *cgroup, struct bio *whole)
{
	bio->bio.bi_bdev = &bio->device;
	bio->bio.bi_blkg = &bio->group;
	bio->bio.bi_private = whole;
	bio->device.bd_dev = dev;
	bio->group.blkcg = &bio->owner;
	bio->owner.css.cgroup = cgroup;
}

/* All that a request has, as the test has it. */
struct host_facts {
	struct host_disk *disk;
	struct bio *bio;
	__u64 sector;
	__u64 alloc_ns;
	__u64 start_ns;
	__u64 issue_ns;
	__u32 cmd_flags;
	__u32 rq_flags;
	__u32 bytes;
	/* 0: none, or that of no partition's. */
	__u32 part;
};

struct host_request {
	struct request request;
	struct block_device part;
};

struct host_request *host_request(void)
{
	return host_make_task(sizeof(struct host_request));
}

/* Old kernels have the disk itself where the queue is now, and its number is the partition's there. */
void host_dress(struct host_request *to, const struct host_facts *facts)
{
	struct request *rq = &to->request;

	if (host_age < 517)
		*(struct gendisk **)rq = &facts->disk->disk;
	else
		rq->q = &facts->disk->queue;
	rq->cmd_flags = facts->cmd_flags;
	rq->rq_flags = facts->rq_flags;
	rq->__data_len = facts->bytes;
	rq->__sector = facts->sector;
	rq->bio = facts->bio;
	rq->part = &to->part;
	to->part.bd_dev = facts->part;
	rq->alloc_time_ns = facts->alloc_ns;
	rq->start_time_ns = facts->start_ns;
	rq->io_start_time_ns = facts->issue_ns;
}

enum host_event {
	HOST_START,
	HOST_INSERT,
	HOST_ISSUE,
	HOST_MERGE,
	HOST_REQUEUE,
	HOST_QUEUE,
	HOST_SPLIT,
	HOST_COMPLETE,
	HOST_DONE,
};

/* `with_queue`: old tracepoints tell of the queue, too. */
void host_happens(enum host_event event, void *subject, __s64 error, __u64 bytes, bool with_queue)
{
	static int (*const programs[][2])(unsigned long long *ctx) = {
		[HOST_START] = { block_io_start, block_io_start },
		[HOST_INSERT] = { block_rq_insert, block_rq_insert_pre_5_11 },
		[HOST_ISSUE] = { block_rq_issue, block_rq_issue_pre_5_11 },
		[HOST_MERGE] = { block_rq_merge, block_rq_merge_pre_5_11 },
		[HOST_REQUEUE] = { block_rq_requeue, block_rq_requeue_pre_5_11 },
		[HOST_QUEUE] = { block_bio_queue, block_bio_queue_pre_5_11 },
		[HOST_SPLIT] = { block_split, block_split_pre_5_11 },
		[HOST_COMPLETE] = { block_rq_complete, block_rq_complete },
		[HOST_DONE] = { block_io_done, block_io_done },
	};
	unsigned long long context[] = { 0, (__u64)subject, (__u64)error, bytes };
	bool is_twin = programs[event][0] != programs[event][1];

	programs[event][with_queue](with_queue && is_twin ? context : context + 1);
}
