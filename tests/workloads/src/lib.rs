//! Helpers that the workloads share.
