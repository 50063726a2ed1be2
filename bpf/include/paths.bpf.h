/* SPDX-License-Identifier: MIT */
/* paths.bpf.h: paths of open files. */
#ifndef __PATHS_BPF_H__
#define __PATHS_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define PATH_NAMES 20
#define PATH_NAME 64

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct dentry___placed {
	struct dentry___placed *d_parent;
	struct qstr d_name;
};
struct vfsmount {
	struct dentry___placed *mnt_root;
};
struct mount {
	struct mount *mnt_parent;
	struct dentry___placed *mnt_mountpoint;
	struct vfsmount mnt;
};
struct path___mounted {
	struct dentry___placed *dentry;
	struct vfsmount *mnt;
};
struct file___mounted {
	struct path___mounted f_path;
};
#pragma clang attribute pop

/* An open file's path, leaf first, as far as there is room. Empty names are no part of it: mounts leave them. */
struct file_path {
	/* The names reach up to the root. */
	__u64 is_whole;
	/* Words, for user space has no long arrays of bytes. */
	__u64 names[PATH_NAMES][PATH_NAME / 8];
};

const struct file_path no_file_path = {};

/* The path as who opened the file sees it, whatever is mounted where; that a name changes meanwhile is bad luck. */
static __always_inline void read_path(struct file_path *to, struct file *file)
{
	struct file___mounted *mounted = (void *)file;
	struct dentry___placed *dentry = BPF_CORE_READ(mounted, f_path.dentry), *parent;
	struct mount *mount = NULL, *above;

	mount = (void *)BPF_CORE_READ(mounted, f_path.mnt) - bpf_core_field_offset(mount->mnt);
	for (int i = 0; i < PATH_NAMES; i++) {
		if (dentry == BPF_CORE_READ(mount, mnt.mnt_root)) {
			above = BPF_CORE_READ(mount, mnt_parent);
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			if (above == mount) {
				to->is_whole = 1;
				return;
			}
			mount = above;
			continue;
		}
		bpf_probe_read_kernel_str((char *)to->names[i], PATH_NAME, (const char *)BPF_CORE_READ(dentry, d_name.name));
		parent = BPF_CORE_READ(dentry, d_parent);
		/* One that is mounted nowhere: its name is all that there is. */
		if (parent == dentry)
			return;
		dentry = parent;
	}
}

#endif
