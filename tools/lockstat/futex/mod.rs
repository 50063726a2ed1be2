//! Kinds of futexes, whoever found them: tracing, or a look at who waits now.

mod class;
mod judge;
mod operation;
pub(crate) mod python;
mod rules;
mod word;

pub(crate) use class::Class;
pub(crate) use judge::{
    BY_CALL, BY_NAME, Call, Evidence, Place, Verdict, calls, classify, first_caller, go_caller,
};
pub(crate) use operation::Operation;
pub(crate) use rules::{Meaning, Role, Rules};
