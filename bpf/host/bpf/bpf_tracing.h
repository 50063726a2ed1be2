/* SPDX-License-Identifier: MIT */
/* bpf_tracing.h: stands for libbpf's. All are in system call 0, with nothing but zeros. */
#ifndef __HOST_BPF_TRACING_H__
#define __HOST_BPF_TRACING_H__

#define HOST_ARGUMENT(at) ((void *)ctx[at])
#define HOST_ARGUMENTS1 HOST_ARGUMENT(0)
#define HOST_ARGUMENTS2 HOST_ARGUMENTS1, HOST_ARGUMENT(1)
#define HOST_ARGUMENTS3 HOST_ARGUMENTS2, HOST_ARGUMENT(2)
#define HOST_ARGUMENTS4 HOST_ARGUMENTS3, HOST_ARGUMENT(3)
#define HOST_COUNTED(a, b, c, d, arguments, ...) arguments
#define HOST_ARGUMENTS(...)                                                                               \
	HOST_COUNTED(__VA_ARGS__, HOST_ARGUMENTS4, HOST_ARGUMENTS3, HOST_ARGUMENTS2, HOST_ARGUMENTS1)

/* Arguments are the context's words. */
#define BPF_PROG(name, ...)                                                                   \
	name(unsigned long long *ctx);                                                         \
	static inline int host_##name(unsigned long long *ctx, __VA_ARGS__);                   \
	int name(unsigned long long *ctx)                                                      \
	{                                                                                      \
		_Pragma("GCC diagnostic push")                                                 \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"")                         \
		return host_##name(ctx, HOST_ARGUMENTS(__VA_ARGS__));                          \
		_Pragma("GCC diagnostic pop")                                                  \
	}                                                                                      \
	static inline int host_##name(unsigned long long *ctx, __VA_ARGS__)

/* Others may have said before where arguments lie. */
#ifndef PT_REGS_PARM1_SYSCALL
#define PT_REGS_PARM1_SYSCALL(regs) 0
#define PT_REGS_PARM2_SYSCALL(regs) 0
#define PT_REGS_PARM3_SYSCALL(regs) 0
#define PT_REGS_PARM4_SYSCALL(regs) 0
#define PT_REGS_PARM5_SYSCALL(regs) 0
#define PT_REGS_PARM6_SYSCALL(regs) 0
#endif
#ifndef PT_REGS_PARM1_CORE_SYSCALL
#define PT_REGS_PARM1_CORE_SYSCALL(regs) 0
#define PT_REGS_PARM2_CORE_SYSCALL(regs) 0
#define PT_REGS_PARM3_CORE_SYSCALL(regs) 0
#endif
#ifndef PT_REGS_PARM4_CORE_SYSCALL
#define PT_REGS_PARM4_CORE_SYSCALL(regs) 0
#define PT_REGS_PARM5_CORE_SYSCALL(regs) 0
#define PT_REGS_PARM6_CORE_SYSCALL(regs) 0
#endif

#endif
