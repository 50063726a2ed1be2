//! Skeletons of the BPF programs, one module per tool.
