/* SPDX-License-Identifier: MIT */
/* no_futexes.h: stands for what lockstat asks of programs' locks, where there are none. */
#ifndef __HOST_NO_FUTEXES_H__
#define __HOST_NO_FUTEXES_H__

#define __FUTEX_BPF_H__

#define futex_found(wait, task, event) ((void)(wait))
#define futex_switched_in(wait, task) ((void)(wait))
#define futex_switched_out(wait, task, runnable, state, event) ((void)(wait))
#define futex_woken(ctx, wait, releasers) ((void)(wait))
#define count_open_futex_wait(wait, task, seq) ((void)(wait))
#define backend_found(backend, task) ((void)(backend), 0)
#define event_of(backend, task) ((void)(backend), 0)
#define is_idle(sleep) ((void)(sleep), false)
#define sleep_found(member, task, event) ((void)(member))
#define sleep_begins(member, task, event, state) ((void)(member))
#define close_unended(sleep, task) ((void)(sleep))
#define sleep_ends(sleep, task) ((void)(sleep))
#define sleep_is_woken(ctx, member) ((void)(member))
#define count_open_sleep(member, task, seq) ((void)(member))

#endif
