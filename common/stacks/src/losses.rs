//! Stacks and names that are missing, in numbers and in words.

use foreign::pages;
use profile::losses::Losses;

use crate::StackTable;

impl StackTable {
    /// What could not be named.
    pub fn count_losses(&self, losses: &mut Losses) {
        let symbols = self.symbolizer.losses();
        losses.count(
            "mapping_changes_lost",
            "changes of mappings: stream full",
            symbols.stream_records,
        );
        losses.count(
            "mappings_forgotten",
            "processes and mappings forgotten",
            symbols.forgotten,
        );
        losses.count(
            "open_stacks_full",
            "stacks of open waits: table full",
            self.outside_full,
        );
        losses.count(
            "open_stacks_ran_on",
            "stacks of open waits: threads ran on",
            self.ran_on,
        );
        losses.count(
            "memory_hung",
            "processes not read, their memory did not answer",
            pages::given_up(),
        );
        self.unwinder.borrow().count_losses(losses);
        self.unwinder.borrow().pythons.count_losses(losses);
    }

    /// What is printed as `module+0xoffset`, and why.
    pub fn describe_unnamed(&self) -> String {
        let symbols = self.symbolizer.losses();
        let reason = |what: &str, why: &Option<String>| {
            why.as_ref()
                .map(|why| format!("; {what}: {why}"))
                .unwrap_or_default()
        };
        format!(
            "{} of {} frames unnamed; {} stacks whose frame pointers led astray; {} files not opened, {} times no answer \
             from a file system, {} changed, {} refused; {} processes gone before their mappings were read; {} perf maps refused, {} not \
             believed{}{}; {}; {}",
            symbols.unnamed,
            symbols.frames,
            self.astray,
            symbols.modules_unopened,
            symbols.files_hung,
            symbols.modules_changed,
            symbols.modules_refused,
            symbols.processes_gone,
            symbols.perf_maps_refused,
            symbols.perf_maps_disbelieved,
            reason("no stream of mapping changes", &symbols.stream),
            reason("no kernel names", &symbols.kernel),
            self.unwinder.borrow().describe(),
            self.unwinder.borrow().pythons.describe(),
        )
    }
}
