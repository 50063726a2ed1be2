#ifndef H
#define H
#define HIST_BUCKETS 720
static __always_inline __u32 hist_bucket(__u64 v) { return v & 511; }
#endif
