//! Addresses → names.
