//! Sources of locks' names, over all intervals of a run.

use symbols::places::Places;

use crate::lockstat::futex::{Class, Rules};
use crate::lockstat::java::Javas;
use crate::lockstat::kernel::symbols::Symbols;
use crate::lockstat::postgres::{self, Servers};
use crate::lockstat::runtimes::Runtimes;

/// Sources of locks' names.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) symbols: Symbols,
    pub(crate) places: Places,
    /// Classes of programs' locks that are shown even where threads wait for work.
    pub(crate) classes: Vec<Class>,
    pub(crate) rules: Rules,
    pub(crate) servers: Servers,
    pub(crate) javas: Javas,
    /// Classes of servers' waits for work that are shown, too.
    pub(crate) server_classes: Vec<postgres::Class>,
    /// Processes with tasks that nobody sees, of the run so far.
    pub(crate) runtimes: Runtimes,
}
