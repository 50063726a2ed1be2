//! What can be asked of pressure.

use std::path::PathBuf;

use clap::Parser;
use clap_complete::Shell;
use trace::options::Common;
use trace::window::Every;

const EXAMPLES: &str = "\
Examples:
  pressure 2                 # what is short right now, every two seconds
  pressure 10 1              # one report over ten seconds";

/// Which resource is short right now, and which tasks lose by it or cause it
#[derive(Parser, Debug)]
#[command(name = "pressure", version, after_help = EXAMPLES, max_term_width = 80)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) every: Every,

    /// Pressure on this cgroup v2 directory instead of the machine
    #[arg(long, value_name = "PATH", help_heading = "Targets")]
    pub(crate) cgroup: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: Common,

    /// Print the script that completes options in SHELL
    #[arg(long, value_name = "SHELL", exclusive = true)]
    pub(crate) completions: Option<Shell>,
}
