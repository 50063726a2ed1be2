//! Joins the native half of a stack and the functions of Python.

use profile::frame::Frame;
use profile::model::StackEnd;
use python::Code;
use symbols::{Location, Symbolizer};

use crate::record::PythonStack;

use super::codes::nameless;
use super::outer::{Outer, outer};
use super::parts::{Part, is_named};
use super::process::Pages;
use super::splice::{Halves, Piece, are_within, splice};
use super::{CUT, Pythons};

impl Pythons {
    /// Puts functions into a stack, leaf first; gives how it ends, too.
    pub(crate) fn join(
        &mut self,
        tgid: u32,
        locations: &[Location],
        end: StackEnd,
        stack: &PythonStack,
        symbolizer: &Symbolizer,
    ) -> (Vec<Part>, StackEnd) {
        let loops = locations.iter().map(|location| self.is_loop(location));
        let is_loop: Vec<bool> = loops.collect();
        if is_named(locations, &is_loop) {
            return (vec![Part::Native(locations.into())], end);
        }
        let is_entry: Vec<bool> = stack.frames.iter().map(|frame| frame.is_entry).collect();
        let outer = outer(locations, symbolizer);
        let outer = outer.filter(|(own, _)| are_within(&is_loop[..*own], &is_entry));
        let (locations, end) = match outer {
            // The stack of whoever has started it is another one by now.
            Some((own, Outer::Starter)) => (&locations[..own], StackEnd::Root),
            _ => (locations, end),
        };
        let spliced = splice(&Halves {
            is_loop: &is_loop[..locations.len()],
            is_native_complete: end == StackEnd::Root,
            own: outer.map_or(locations.len(), |(own, _)| own),
            is_entry: &is_entry,
            is_python_complete: stack.end == StackEnd::Root,
            keeps_loops: self.keeps_loops,
        });
        self.unmatched += u64::from(!spliced.is_matched);
        self.cut += u64::from(stack.end == StackEnd::Depth);
        self.unreadable += u64::from(stack.end == StackEnd::Unreadable);
        let frames = self.frames(tgid, stack);
        let part = |piece| match piece {
            Piece::Native(range) => Part::Native(locations[range].into()),
            Piece::Python(range) => {
                let is_last = range.end == stack.frames.len() && stack.end != StackEnd::Root;
                let mut of_piece: Vec<Frame> = frames[range].iter().flatten().cloned().collect();
                of_piece.extend(is_last.then(|| nameless(CUT)));
                Part::Python(of_piece.into())
            }
        };
        let parts = spliced.pieces.into_iter().map(part).collect();
        let is_whole = end == StackEnd::Root;
        (parts, if is_whole { stack.end } else { end })
    }

    fn is_loop(&self, location: &Location) -> bool {
        let Location::Module { module, offset } = location else {
            return false;
        };
        let ranges = self.loops.get(module);
        ranges.is_some_and(|ranges| ranges.iter().any(|range| range.contains(offset)))
    }

    fn frames(&mut self, tgid: u32, stack: &PythonStack) -> Vec<Option<Frame>> {
        let (space, runtime) = self.runtime(tgid).unzip();
        let memory = Pages(tgid);
        let frames = stack.frames.iter().map(|frame| {
            let read = || Code::read(&memory, runtime.as_ref()?, frame.code).ok();
            let process = (tgid, space.unwrap_or_default());
            self.codes.frame(process, frame, read)
        });
        frames.collect()
    }
}
