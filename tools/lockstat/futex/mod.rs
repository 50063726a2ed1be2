//! What futexes are, whoever found them: tracing, or a look at who waits now.

mod class;
mod functions;
mod operation;

pub(crate) use class::{
    BY_CALL, BY_NAME, Class, Evidence, Place, Verdict, classify, first_caller, go_caller,
};
pub(crate) use operation::Operation;
