//! Kinds of futexes, whoever found them: tracing, or a look at who waits now.

mod class;
mod functions;
mod judge;
mod operation;

pub(crate) use class::Class;
pub(crate) use judge::{
    BY_CALL, BY_NAME, Evidence, Place, Verdict, classify, first_caller, go_caller,
};
pub(crate) use operation::Operation;
