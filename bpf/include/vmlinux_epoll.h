/* SPDX-License-Identifier: MIT */
/* vmlinux_epoll.h: the kernel's types of epoll(7), as far as the tools look at them; a part of vmlinux.h. */
#ifndef __VMLINUX_EPOLL_H__
#define __VMLINUX_EPOLL_H__

struct rb_node {
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct rb_root_cached {
	struct rb_root rb_root;
};

struct epoll_filefd {
	struct file *file;
	int fd;
};

/* It begins with its node of the tree. */
struct epitem {
	struct rb_node rbn;
	struct list_head rdllink;
	struct epoll_filefd ffd;
};

struct eventpoll {
	struct list_head rdllist;
	struct rb_root_cached rbr;
	struct file *file;
};

#endif
