/* machine.h: what differs between machines: a system call, registers to save, an instruction that faults, a context's pc, and
 * how long a chain's end computes: on an emulated machine what leads there takes longer, for it is translated first.
 */
#ifndef MACHINE_H
#define MACHINE_H

#if defined(__aarch64__)

static inline __attribute__((always_inline)) long system_call(long number, long a, long b, long c)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
}

#define COMPUTE_NS 60000000L
#define SAVED_REGISTERS "x19", "x20", "x21", "x22", "x23", "x24", "d8", "d9"
#define FAULTS "udf #0"
#define FAULT_BYTES 4
#define CONTEXT_PC(context) ((context)->uc_mcontext.pc)

#else

static inline __attribute__((always_inline)) long system_call(long number, long a, long b, long c)
{
	long result = number;

	__asm__ volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}

#define COMPUTE_NS 20000000L
#define SAVED_REGISTERS "rbx", "r12", "r13", "r14", "r15"
#define FAULTS "ud2"
#define FAULT_BYTES 2
#define CONTEXT_PC(context) ((context)->uc_mcontext.gregs[REG_RIP])

#endif
#endif
