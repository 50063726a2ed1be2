#ifndef __GLOB_BPF_H__
#define __GLOB_BPF_H__
struct glob { __u32 accept[256]; __u32 star; __u32 final_mask; };
static __always_inline bool glob_match(const struct glob *glob, const char comm[16]) { return true; }
#endif
