//! The word of a budget to the loop of a collection.

/// The next steps of a collection with a budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct Next {
    /// When a step is due, ns; `None`: nothing in particular.
    pub due_ns: Option<u64>,
    /// It is to end: looking as rarely as possible costs too much.
    pub must_stop: bool,
}
