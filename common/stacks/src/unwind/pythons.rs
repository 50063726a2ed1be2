//! Interpreters of the processes whose tables are kept.

use host::procs;
use symbols::Symbolizer;

use super::Unwinder;

impl Unwinder {
    /// Looks for interpreters in processes whose mappings are published: that reads files, and walks do not wait for it.
    pub(super) fn look_for_python(&mut self, symbolizer: &mut Symbolizer) {
        let mut unlooked = std::mem::take(&mut self.unlooked);
        unlooked.extend(self.pythons.due());
        for tgid in unlooked {
            let Some(start_stack) = procs::stack_start(tgid) else {
                continue;
            };
            let Some(executables) = symbolizer.executables(tgid) else {
                continue;
            };
            let space = (tgid, start_stack);
            if self.pythons.look(space, &executables, symbolizer) {
                let python = self.pythons.number(space);
                self.publish(space, &executables, python, symbolizer);
            }
        }
    }
}
