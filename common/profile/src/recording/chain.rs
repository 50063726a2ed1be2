//! A sample as one line of boxes, root → leaf: what folded text, graphs and other people's formats have.
//!
//! `[idle] [reason] user… - kernel… -- waker kernel (reversed)… - waker user (reversed)… waker comm`; the thread's own name
//! is not part of it.

use std::borrow::Cow;

use super::{FrameKey, NameId, Recording, RowKey, StackId, TaskKey, WakerId, WakerKey};
use crate::frame::FrameKind;
use crate::reasons::WORDS;

/// What a box is, beyond the kinds of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CellKind {
    /// A function of the thread itself.
    Code(FrameKind),
    /// A function of the waker, or its name.
    Waker,
    /// Root of what a thread does when it has nothing to do.
    Idle,
    /// The reason of a wait; shown in brackets.
    Reason,
    /// Between user and kernel, thread and waker.
    Separator,
    /// A thread's name.
    Task,
}

/// One box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// What it is.
    pub kind: CellKind,
    /// The function, or a made-up frame with a name only.
    pub frame: FrameKey,
}

/// Which boxes are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boxes {
    /// `[idle]` at the root of idle waits.
    pub idle: bool,
    /// The reason, as `[futex]`.
    pub reason: bool,
    /// `-` between user and kernel, where there are both.
    pub delimiter: bool,
}

impl FrameKey {
    /// A frame of which nothing but the name is known.
    pub fn named(name: NameId) -> Self {
        Self {
            name,
            module: NameId::NONE,
            file: NameId::NONE,
            line: 0,
            address: 0,
            kind: FrameKind::Unknown,
            inlined: false,
        }
    }
}

impl Recording {
    /// The boxes of a sample, root → leaf.
    pub fn chain(&self, key: &RowKey, boxes: Boxes) -> Vec<Cell> {
        let mut cells = Vec::new();
        if key.idle && boxes.idle {
            cells.push(made_up(CellKind::Idle, NameId::IDLE));
        }
        if key.reason.is_some() && boxes.reason {
            cells.push(made_up(CellKind::Reason, key.reason));
        }
        let frames = self.root_first(key.stack);
        let boundary = boundary(&frames);
        for (index, frame) in frames.iter().enumerate() {
            if boxes.delimiter && Some(index) == boundary {
                cells.push(made_up(CellKind::Separator, NameId::DASH));
            }
            cells.push(Cell {
                kind: CellKind::Code(frame.kind),
                frame: **frame,
            });
        }
        let Some(waker) = self.waker(key.waker) else {
            return cells;
        };
        cells.push(made_up(CellKind::Separator, NameId::DASHES));
        let frames = self.root_first(waker.stack);
        let boundary = frames.len() - super::chain::boundary(&frames).unwrap_or(0);
        for (index, frame) in frames.iter().rev().enumerate() {
            if boxes.delimiter && index == boundary && boundary < frames.len() {
                cells.push(made_up(CellKind::Separator, NameId::DASH));
            }
            cells.push(Cell {
                kind: CellKind::Waker,
                frame: **frame,
            });
        }
        let name = match waker.task {
            Some(task) => task.comm,
            None => NameId::IRQ,
        };
        cells.push(made_up(CellKind::Waker, name));
        cells
    }

    /// Undoes [`Self::chain`] for frames that came out of a file: separators turn into kinds, what is behind `--` into the
    /// waker. Fills `stack`, `idle`, `reason` and `waker` of a key.
    pub fn unchain(&mut self, frames: &[FrameKey]) -> Unchained {
        let mut rest = frames;
        let mut found = Unchained::default();
        if let Some((first, after)) = rest.split_first()
            && first.name == NameId::IDLE
        {
            (found.idle, rest) = (true, after);
        }
        if let Some((first, after)) = rest.split_first() {
            let word = self.text(first.name);
            let word = word
                .strip_prefix('[')
                .and_then(|word| word.strip_suffix(']'));
            if let Some(word) = word.filter(|word| WORDS.contains(word)) {
                let word = word.to_owned();
                (found.reason, rest) = (self.names.id(&word), after);
            }
        }
        let dashes = rest.iter().position(|frame| frame.name == NameId::DASHES);
        let (own, waker) = match dashes {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        found.stack = self.push_parts(own, false);
        if let Some((name, waker)) = waker.and_then(<[FrameKey]>::split_last) {
            let stack = self.push_parts(waker, true);
            let task = (name.name != NameId::IRQ).then_some(TaskKey::named(name.name));
            found.waker = self.waker_id(&WakerKey {
                task,
                stack,
                end: None,
            });
        }
        found
    }

    /// User and kernel frames, perhaps with a `-` between them. `reversed`: leaf first.
    fn push_parts(&mut self, frames: &[FrameKey], reversed: bool) -> StackId {
        let dash = frames.iter().position(|frame| frame.name == NameId::DASH);
        let mut stack = 0;
        let mut push = |index: usize| {
            let mut frame = frames[index];
            if let Some(dash) = dash
                && frame.kind == FrameKind::Unknown
            {
                let is_kernel = if reversed { index < dash } else { index > dash };
                frame.kind = if is_kernel {
                    FrameKind::Kernel
                } else {
                    FrameKind::User
                };
            }
            if Some(index) != dash {
                stack = self.push(stack, frame);
            }
        };
        if reversed {
            (0..frames.len()).rev().for_each(&mut push);
        } else {
            (0..frames.len()).for_each(&mut push);
        }
        stack
    }

    /// What a box says.
    pub fn cell_text(&self, cell: &Cell) -> Cow<'_, str> {
        let name = self.text(cell.frame.name);
        match cell.kind {
            CellKind::Reason => format!("[{name}]").into(),
            _ => name.into(),
        }
    }
}

/// What [`Recording::unchain`] found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unchained {
    /// The stack.
    pub stack: StackId,
    /// There was an `[idle]`.
    pub idle: bool,
    /// There was a reason.
    pub reason: NameId,
    /// The waker, if there was one.
    pub waker: WakerId,
}

impl Unchained {
    /// The key of a sample of `task` of which nothing else is known.
    pub(crate) fn key(self, task: TaskKey) -> RowKey {
        RowKey {
            task,
            stack: self.stack,
            end: None,
            reason: self.reason,
            idle: self.idle,
            waker: self.waker,
            labels: 0,
        }
    }
}

/// Index of the first kernel frame, where user frames are before it.
fn boundary(frames: &[&FrameKey]) -> Option<usize> {
    let first = frames
        .iter()
        .position(|frame| frame.kind == FrameKind::Kernel);
    first.filter(|first| *first > 0)
}

fn made_up(kind: CellKind, name: NameId) -> Cell {
    Cell {
        kind,
        frame: FrameKey::named(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{ReadOptions, read};

    #[test]
    fn a_chain_has_each_box_that_is_wanted_once() {
        let line = "app;[idle];[futex];main;wait;-;do_futex_[k] 1\n";
        let recording = read(line.as_bytes(), &ReadOptions::default()).expect("a line");
        let key = *recording.rows().next().expect("a row").key;
        let boxes = |idle, reason, delimiter| {
            let wanted = Boxes {
                idle,
                reason,
                delimiter,
            };
            let cells = recording.chain(&key, wanted);
            let names = cells.iter().map(|cell| recording.cell_text(cell));
            names.collect::<Vec<_>>().join(";")
        };
        assert_eq!(
            boxes(true, true, true),
            "[idle];[futex];main;wait;-;do_futex"
        );
        assert_eq!(boxes(false, true, false), "[futex];main;wait;do_futex");
        assert_eq!(boxes(false, false, false), "main;wait;do_futex");
    }
}
