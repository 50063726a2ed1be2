//! Processes and code that were seen in stacks: their tables come first.

use symbols::Symbolizer;

use super::{Method, State, Unwinder};

impl Unwinder {
    /// A stack of this process was seen: its tables are wanted from now on.
    pub fn follow(&mut self, tgid: u32, symbolizer: &mut Symbolizer) {
        if self.method != Method::Fp && self.followed.insert(tgid) {
            self.refresh(tgid, symbolizer);
        }
    }

    /// Code was seen in a stack, which may have ended there: if its table is still to be made, it comes before those of code that nobody
    /// runs.
    pub(crate) fn want(
        &mut self,
        tgid: u32,
        (module, is_end): (u32, bool),
        symbolizer: &mut Symbolizer,
    ) {
        let is_postponed = self.postponed.contains(&tgid);
        match self.modules.get_mut(&module) {
            Some(State::Making(waiting)) => {
                // Its next look may be a long way off.
                if is_postponed {
                    waiting.insert(tgid);
                }
                self.maker.want(module);
            }
            Some(State::With(_)) if is_postponed && is_end => self.refresh(tgid, symbolizer),
            None if is_postponed && self.maker.has_reserve() => {
                self.order(tgid, module, symbolizer);
                self.maker.want(module);
            }
            _ => {}
        }
    }
}
