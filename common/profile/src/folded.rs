//! Folded stacks: `comm;root;…;leaf VALUE`, one line a stack.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::escape;
use crate::frame::{Frame, FrameKind};
use crate::model::{Profile, Sample, Task, Waker};

/// What to do with the waits of threads that have nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Put them under one `[idle]` frame at the root.
    Fold,
    /// Treat them like all others.
    #[default]
    Show,
    /// Leave everything else out.
    Only,
}

/// How lines are built.
#[derive(Clone, Copy, Debug)]
pub struct FoldedOptions {
    /// A `-` frame between user and kernel part, where there are both.
    pub delimiter: bool,
    /// `_[k]`, `_[i]`, `_[j]` behind kernel, inlined and JIT frames.
    pub annotate: bool,
    /// The reason of the wait behind the root frame, as `[futex]`.
    pub reason: bool,
    /// Root frame `comm-PID/TID`, as `stackcollapse-perf.pl --tid` has it.
    pub threads: bool,
    /// A line per value: its name, as `[blocked]`, is the last frame, so that totals stay what they are without.
    pub split: bool,
    /// Idle waits.
    pub idle: Idle,
    /// Values are divided by this at the end: 1000 makes ns µs.
    pub divisor: u64,
    /// Index of the value to write; `None`: the sum of all.
    pub value: Option<usize>,
}

impl Default for FoldedOptions {
    fn default() -> Self {
        Self {
            delimiter: false,
            annotate: false,
            reason: false,
            threads: false,
            split: false,
            idle: Idle::Show,
            divisor: 1,
            value: None,
        }
    }
}

/// What became of the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Lines written.
    pub lines: usize,
    /// Undivided sum of stacks that rounded to 0 and have no line.
    pub dropped: u64,
}

/// Writes a profile, sorted; equal stacks become one line.
///
/// Values are added before they are divided, so that many short waits are not rounded away one by one.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    profile: &Profile,
    options: &FoldedOptions,
    out: &mut impl Write,
) -> io::Result<Written> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for sample in &profile.samples {
        if options.idle == Idle::Only && !sample.idle {
            continue;
        }
        let frames = frames(sample, options);
        if options.split {
            for (kind, value) in profile.values.iter().zip(&sample.values) {
                let mut frames = frames.clone();
                frames.push(format!("[{}]", kind.name).into());
                *lines.entry(join(frames)).or_default() += value;
            }
        } else {
            let value = options
                .value
                .map_or_else(|| sample.total(), |index| sample.values[index]);
            *lines.entry(join(frames)).or_default() += value;
        }
    }
    let mut written = Written::default();
    for (stack, value) in lines {
        let rounded = (value + options.divisor / 2) / options.divisor;
        if rounded == 0 {
            written.dropped += value;
        } else {
            writeln!(out, "{stack} {rounded}")?;
            written.lines += 1;
        }
    }
    Ok(written)
}

fn join(mut frames: Vec<Cow<'_, str>>) -> String {
    if let Some(last) = frames.pop() {
        frames.push(escape::last_frame(last));
    }
    frames.join(";")
}

fn frames<'a>(sample: &'a Sample, options: &FoldedOptions) -> Vec<Cow<'a, str>> {
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
    if let Some(waker) = &sample.waker {
        push_waker(waker, options, &mut frames);
    }
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
    frames.push(
        waker
            .task
            .as_ref()
            .map_or("[irq]".into(), |task| root(task, options)),
    );
}

fn root<'a>(task: &'a Task, options: &FoldedOptions) -> Cow<'a, str> {
    let comm = escape::folded(&task.comm);
    if options.threads {
        format!("{comm}-{}/{}", task.tgid, task.tid).into()
    } else {
        comm
    }
}

fn name<'a>(frame: &'a Frame, options: &FoldedOptions) -> Cow<'a, str> {
    let name = escape::folded(&frame.name);
    let mark = match frame {
        _ if !options.annotate => return name,
        Frame { inlined: true, .. } => "_[i]",
        Frame {
            kind: FrameKind::Kernel,
            ..
        } => "_[k]",
        Frame {
            kind: FrameKind::Jit,
            ..
        } => "_[j]",
        _ => return name,
    };
    Cow::Owned(format!("{name}{mark}"))
}
