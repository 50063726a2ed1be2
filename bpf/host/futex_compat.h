/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* futex_compat.h: calls of 32-bit programs; behind a tool's programs. */
#ifndef __HOST_FUTEX_COMPAT_H__
#define __HOST_FUTEX_COMPAT_H__

/* It is of a 32-bit program, and inside one of its calls. */
static bool host_is_compat(const struct task_struct *task)
{
	return is_compat_call((struct task_struct *)task);
}

/* Architecture: 32-bit programs are played on x86-64 alone. */
#ifdef TS_COMPAT

bool host_has_compat(void)
{
	return true;
}

/* An odd value is waited for by the younger call, with 64 bits of time. */
static __u64 host_compat_number(__s64 number, const __u64 arguments[6])
{
	switch (number) {
	case HOST_FUTEX:
		return arguments[2] % 2 ? SYSCALL_COMPAT_FUTEX_TIME64 : SYSCALL_COMPAT_FUTEX;
	case HOST_EXIT:
		return SYSCALL_COMPAT_EXIT;
	case HOST_EXIT_GROUP:
		return SYSCALL_COMPAT_EXIT_GROUP;
	case HOST_RESTART:
		return SYSCALL_COMPAT_RESTART;
	default:
		return number;
	}
}

/* The same call of a 32-bit program, from now on. */
void host_calls_compat(struct task_struct *task, __s64 number, const __u64 arguments[6])
{
	struct pt_regs *registers = host_registers_of(task);

	task->thread_info.status = TS_COMPAT;
	registers->cs = USER32_CS;
	registers->orig_ax = host_compat_number(number, arguments);
	registers->bx = arguments[0];
	registers->cx = arguments[1];
	registers->dx = arguments[2];
	registers->si = arguments[3];
	registers->di = arguments[4];
	registers->bp = arguments[5];
}

#else

bool host_has_compat(void)
{
	return false;
}

void host_calls_compat(struct task_struct *task, __s64 number, const __u64 arguments[6])
{
	host_calls(task, number, arguments);
}

#endif

#endif
