/* SPDX-License-Identifier: MIT */
/* vmlinux_cgroups.h: the kernel's types of cgroups, as far as the tools look at them; a part of vmlinux.h. */
#ifndef __VMLINUX_CGROUPS_H__
#define __VMLINUX_CGROUPS_H__

struct kernfs_node {
	u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[0];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct cfs_bandwidth {
	u64 quota;
	int nr_periods;
	int nr_throttled;
	u64 throttled_time;
};

struct task_group {
	struct cgroup_subsys_state css;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

#endif
