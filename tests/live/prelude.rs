//! The vocabulary of live tests.

pub(crate) use serde_json::Value;

pub(crate) use crate::bound::{assert_all, assert_bracketed, assert_within};
pub(crate) use crate::c_program::{Program, copy_program};
pub(crate) use crate::found::{
    address, folded_sum, id, ids, json, list, number, only, sum, text, weight,
};
pub(crate) use crate::kernel::Machine;
pub(crate) use crate::tool::{Output, Tool};
pub(crate) use crate::traced::{Sandwich, during, observed, reported, sandwiched, traced};
pub(crate) use crate::workload::Workload;
