//! Folded lines of a recording.

mod sorted;

use std::io::{self, Write};

use crate::escape;
use crate::folded::{MARKS, divide, mark, root_of};
use crate::recording::{Boxes, Cell, NameId, Recording, TaskKey};
use sorted::Lines;

/// Writes annotated lines, sorted. Times are in microseconds, as in bcc; sums that round to 0 have no line.
pub(super) fn write(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let divisor = if recording.unit() == "ns" { 1000 } else { 1 };
    let boxes = Boxes {
        idle: true,
        reason: false,
        delimiter: false,
    };
    let mut lines = Lines::default();
    let mut texts = Texts::new(recording);
    for row in recording.rows() {
        let root = lines.name(&root(recording, row.key.task));
        let mut frames = vec![root];
        for cell in recording.chain(row.key, boxes) {
            frames.push(texts.of(recording, &cell, &mut lines));
        }
        lines.add(&frames, recording.weight(&row));
    }
    lines.write(|sum| divide(sum, divisor), out)
}

/// The thread's root frame, with IDs where the file that it came from showed them.
pub(crate) fn root(recording: &Recording, task: TaskKey) -> String {
    let comm = recording.text(task.comm);
    root_of(comm, (task.pid, task.tid), recording.header.shows_threads).into_owned()
}

/// What frames are called in folded text: by name, with each annotation; [`NameId::NONE`] where nobody has asked yet.
struct Texts(Vec<[NameId; MARKS.len()]>);

impl Texts {
    fn new(recording: &Recording) -> Self {
        Self(vec![[NameId::NONE; MARKS.len()]; recording.names.len()])
    }

    fn of(&mut self, recording: &Recording, cell: &Cell, lines: &mut Lines) -> NameId {
        let mark = mark(cell.frame.kind, cell.frame.inlined);
        let known = &mut self.0[cell.frame.name.index()][mark];
        if !known.is_some() {
            let text = recording.cell_text(cell);
            let mut text = escape::folded(&text);
            if mark > 0 {
                text.to_mut().push_str(MARKS[mark]);
            }
            *known = lines.name(&text);
        }
        *known
    }
}
