/* SPDX-License-Identifier: MIT */
/* unwind_rule.bpf.h: the rule for the place where a walk is, by whichever list of mappings there is. */
#ifndef __UNWIND_RULE_BPF_H__
#define __UNWIND_RULE_BPF_H__

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "unwind_state.bpf.h"
#include "unwind_unlisted.bpf.h"

/* Index of the rule for an address by the process's list, and by what it has mapped since this was made; 0: none covers it. */
__noinline __u32 search_index(__u32 slot, __u64 pc)
{
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratches, &slot);
	__u32 index = 0;

	if (!scratch)
		return 0;
	if (!scratch->unwind.is_unlisted)
		index = search_rule(scratch->unwind.process.mappings_at, scratch->unwind.process.mappings, pc);
	if (!index && can_find_mappings())
		index = search_unlisted(slot, &scratch->unwind, pc);
	return index;
}

static __always_inline struct unwind_rule searched_rule(__u32 slot, __u64 pc)
{
	struct unwind_rule none = {};
	struct unwind_rules *rules;
	__u32 zero = 0;

	rules = bpf_map_lookup_elem(&unwind_rules, &zero);
	return rules ? rules->rules[search_index(slot, pc) & (MAX_RULES - 1)] : none;
}

static __always_inline struct unwind_rule rule_for(__u32 slot, const struct unwind *at, struct rule_cache *cache, __u64 pc)
{
	struct cached_rule *cached = &cache->rules[(pc ^ pc >> 10 ^ at->process.generation) & (CACHED_RULES - 1)];
	struct unwind_rule rule;

	/* What is cached is known by its list's generation. */
	if (at->is_unlisted)
		return searched_rule(slot, pc);
	if (cached->pc == pc && cached->generation == at->process.generation) {
		rule = cached->rule;
		barrier();
		/* An interrupt's walk may have put another rule here meanwhile. */
		if (cached->pc == pc && cached->generation == at->process.generation)
			return rule;
	}
	rule = searched_rule(slot, pc);
	cached->pc = 0;
	barrier();
	cached->rule = rule;
	cached->generation = at->process.generation;
	barrier();
	cached->pc = pc;
	return rule;
}

#endif
