/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* lacks.h: kernels that lack fields, values or functions, as a test says; in front of a tool's programs. */
#ifndef __HOST_LACKS_H__
#define __HOST_LACKS_H__

#include <bpf/bpf_core_read.h>

/* Names of what the kernel that runs lacks. */
static char host_lacked[8][64];

/* NULL: it has everything. */
void host_lack(const char *what)
{
	int at = 0;

	if (!what)
		__builtin_memset(host_lacked, 0, sizeof(host_lacked));
	while (what && host_lacked[at][0])
		at++;
	if (what)
		__builtin_strncpy(host_lacked[at], what, sizeof(host_lacked[at]) - 1);
}

static inline bool host_has(const char *what)
{
	for (int at = 0; at < 8; at++)
		if (!__builtin_strcmp(host_lacked[at], what))
			return false;
	return true;
}

#undef bpf_core_field_exists
#undef bpf_core_enum_value_exists
#define bpf_core_field_exists(...) host_has(#__VA_ARGS__)
#define bpf_core_enum_value_exists(type, value) host_has(#value)

#endif
