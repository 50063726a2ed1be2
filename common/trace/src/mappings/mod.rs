//! Which file a process had mapped where, and when.
