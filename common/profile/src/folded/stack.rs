//! The frames of a folded line.

use std::borrow::Cow;

use super::{FoldedOptions, Idle};
use crate::escape;
use crate::frame::{Frame, FrameKind};
use crate::model::{Sample, Task, Waker};

/// A line but for its value, in two pieces: a split value's frame goes between them.
pub(super) type Stack = (String, String);

/// The waiting or running stack, and its waker's.
pub(super) fn stack(sample: &Sample, options: &FoldedOptions) -> Stack {
    let mut target = target(sample, options);
    let mut waker = Vec::new();
    if let Some(made_runnable_by) = &sample.waker {
        push_waker(made_runnable_by, options, &mut waker);
        guard_last(&mut waker);
    } else if !options.split {
        guard_last(&mut target);
    }
    let waker: String = waker.iter().map(|frame| format!(";{frame}")).collect();
    (target.join(";"), waker)
}

fn guard_last(frames: &mut Vec<Cow<'_, str>>) {
    if let Some(last) = frames.pop() {
        frames.push(escape::last_frame(last));
    }
}

fn target<'a>(sample: &'a Sample, options: &FoldedOptions) -> Vec<Cow<'a, str>> {
    let mut frames = vec![root(&sample.task, options)];
    if sample.idle && options.idle == Idle::Fold {
        frames.push("[idle]".into());
    }
    if let Some(reason) = sample.reason.filter(|_| options.reason) {
        frames.push(format!("[{reason}]").into());
    }
    frames.extend(sample.user.iter().map(|frame| name(frame, options)));
    if options.delimiter && !sample.user.is_empty() && !sample.kernel.is_empty() {
        frames.push("-".into());
    }
    frames.extend(sample.kernel.iter().map(|frame| name(frame, options)));
    frames
}

/// offwaketime's layout: the waker's stack stands on its head, so that the two leaves meet at `--`.
fn push_waker<'a>(waker: &'a Waker, options: &FoldedOptions, frames: &mut Vec<Cow<'a, str>>) {
    frames.push("--".into());
    frames.extend(waker.kernel.iter().rev().map(|frame| name(frame, options)));
    if options.delimiter && !waker.user.is_empty() && !waker.kernel.is_empty() {
        frames.push("-".into());
    }
    frames.extend(waker.user.iter().rev().map(|frame| name(frame, options)));
    frames.push(match &waker.task {
        Some(task) => root(task, options),
        None => "[irq]".into(),
    });
}

fn root<'a>(task: &'a Task, options: &FoldedOptions) -> Cow<'a, str> {
    root_of(&task.comm, (task.tgid, task.tid), options.threads)
}

/// The root frame of a thread, by its name, its process and its ID. A process that this PID namespace does not show is `comm-?/TID`, as
/// in `stackcollapse-perf.pl`.
pub(crate) fn root_of(comm: &str, (tgid, tid): (u32, u32), with_ids: bool) -> Cow<'_, str> {
    let comm = escape::first_frame(escape::folded(comm));
    match tgid {
        _ if !with_ids => comm,
        0 => format!("{comm}-?/{tid}").into(),
        tgid => format!("{comm}-{tgid}/{tid}").into(),
    }
}

fn name<'a>(frame: &'a Frame, options: &FoldedOptions) -> Cow<'a, str> {
    let mut name = escape::folded(&frame.name);
    let mark = mark(frame.kind, frame.inlined);
    if options.annotate && mark > 0 {
        name.to_mut().push_str(MARKS[mark]);
    }
    name
}

/// Annotations of frames.
pub(crate) const MARKS: [&str; 4] = ["", "_[k]", "_[i]", "_[j]"];

/// Index of a frame's in [`MARKS`]. An inlined kernel function is still the kernel's: palettes colour by it.
pub(crate) fn mark(kind: FrameKind, inlined: bool) -> usize {
    match (kind, inlined) {
        (FrameKind::Kernel, _) => 1,
        (_, true) => 2,
        (FrameKind::Jit, false) => 3,
        (FrameKind::User | FrameKind::Unknown, false) => 0,
    }
}
