/* SPDX-License-Identifier: MIT */
/* offcputime_files.h: files of every kind that a wait can be for; behind the tool's programs. */
#ifndef __HOST_OFFCPUTIME_FILES_H__
#define __HOST_OFFCPUTIME_FILES_H__

/* Files as the kernel has them, and what is to be told of each. */
static const struct {
	/* S_IFMT >> 12; 0: an anonymous inode, and its name. */
	__u8 mode;
	const char *name;
	/* A socket's family and type, the backlog that a listening one was given, whether a Unix socket and its peer have names, and how many
	 * sockets have its.
	 */
	__u16 family, type;
	__u32 backlog;
	bool is_named, has_named_peer;
	int namesakes;
	/* The file system of anonymous inodes. */
	bool is_anonymous;
	__u8 told;
	/* The table of descriptors ends before it. */
	bool is_beyond;
} host_files[] = {
	{ .name = "[perf_event]" },
	{ .mode = 1, .told = 1 },
	{ .mode = 2, .told = 2 },
	{ .mode = 4, .told = 4 },
	{ .mode = 6, .told = 6 },
	{ .mode = 8, .told = 8 },
	{ .name = "[eventfd]", .told = 16 },
	{ .name = "inotify", .told = 17 },
	{ .name = "[timerfd]", .told = 18 },
	{ .name = "[signalfd]", .told = 19 },
	{ .mode = 12, .family = AF_INET, .type = 1, .told = 12 },
	{ .mode = 12, .family = AF_INET, .type = 1, .backlog = 5, .told = 20 },
	{ .mode = 12, .family = AF_INET6, .type = 1, .backlog = 5, .told = 20 },
	/* Every Unix socket has a backlog. */
	{ .mode = 12, .family = AF_UNIX, .type = 1, .backlog = 10, .told = 12 },
	{ .mode = 12, .family = AF_UNIX, .type = 5, .backlog = 10, .is_named = true, .namesakes = 1, .told = 20 },
	{ .mode = 12, .family = AF_UNIX, .type = 1, .backlog = 10, .is_named = true, .has_named_peer = true, .namesakes = 1, .told = 12 },
	{ .mode = 12, .family = AF_UNIX, .type = 1, .backlog = 10, .is_named = true, .has_named_peer = true, .namesakes = 2, .told = 20 },
	{ .mode = 12, .family = AF_UNIX, .type = 1, .backlog = 10, .has_named_peer = true, .told = 12 },
	{ .mode = 8, .is_anonymous = true, .name = "[eventfd]", .told = 16 },
	{ .mode = 8, .name = "inotify", .told = 8 },
	{ .mode = 12, .family = AF_UNIX, .type = 2, .backlog = 10, .is_named = true, .told = 12 },
	/* Netlink. */
	{ .mode = 12, .family = 16, .type = 3, .backlog = 10, .is_named = true, .told = 12 },
	{ .mode = 8, .is_beyond = true },
};

#define HOST_FILES (sizeof(host_files) / sizeof(host_files[0]))

static __u32 host_file_of(__u32 tid)
{
	return tid % HOST_FILES;
}

/* The number that is to be told of the file that a thread waits for. */
__u32 host_file_told(__u32 tid)
{
	return host_files[host_file_of(tid)].told;
}

/* A quarter of the threads are the kernel's, and descriptor 0 is a file of any kind. */
static void host_give(struct task_struct *task)
{
	static struct inode inodes[HOST_FILES];
	static struct dentry dentries[HOST_FILES];
	static struct unix_sock sockets[HOST_FILES], peers[HOST_FILES];
	static struct super_block systems[HOST_FILES];
	static struct socket ends[HOST_FILES];
	static struct file files[HOST_FILES], *opened[HOST_FILES];
	static struct fdtable tables[HOST_FILES];
	static struct files_struct all[HOST_FILES];
	__u32 at = host_file_of(task->pid);
	static struct unix_address names[HOST_FILES];
	struct unix_sock *named = &sockets[at];
	struct sock *sock = &named->sk;

	task->flags = task->pid % 4 == 3 ? PF_KTHREAD : 0;
	inodes[at].i_mode = host_files[at].mode << 12 | 0644;
	if (!host_files[at].mode)
		inodes[at].i_mode = 0600;
	dentries[at].d_name.name = (const unsigned char *)(host_files[at].name ?: "name of a file");
	sock->__sk_common.skc_family = host_files[at].family;
	sock->sk_type = host_files[at].type;
	sock->sk_max_ack_backlog = host_files[at].backlog;
	names[at].refcnt.refs.counter = host_files[at].namesakes;
	named->addr = host_files[at].is_named ? &names[at] : NULL;
	named->peer = &peers[at].sk;
	peers[at].addr = host_files[at].has_named_peer ? &names[at] : NULL;
	systems[at].s_magic = host_files[at].is_anonymous ? ANON_INODE_FS_MAGIC : 0xef53;
	inodes[at].i_sb = &systems[at];
	ends[at].sk = sock;
	files[at] = (struct file){ .f_inode = &inodes[at], .f_path.dentry = &dentries[at], .private_data = &ends[at] };
	opened[at] = &files[at];
	tables[at].max_fds = !host_files[at].is_beyond;
	tables[at].fd = &opened[at];
	all[at].fdt = &tables[at];
	task->files = &all[at];
}

#endif
