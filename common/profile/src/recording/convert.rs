//! Between what tools make and what files hold.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::{FrameKey, Header, NameId, Recording, Row, RowKey, StackId, TaskKey, Value, WakerKey};
use crate::frame::{Frame, FrameKind};
use crate::model::{Profile, Sample, Task, ValueType, Waker};

impl Recording {
    /// What a tool found.
    pub fn of_profile(profile: &Profile) -> Self {
        let values = profile
            .values
            .iter()
            .map(|value| Value::new(value.name, value.unit));
        let mut recording = Self::new(Header {
            tool: profile.tool.into(),
            values: values.collect(),
            duration_ns: profile.duration_ns,
            has_counts: true,
            ..Header::default()
        });
        for sample in &profile.samples {
            let key = recording.key_of(sample);
            recording.add(&key, sample.count, &sample.values);
        }
        recording
    }

    /// The key of a tool's sample.
    pub(crate) fn key_of(&mut self, sample: &Sample) -> RowKey {
        let waker = sample.waker.as_deref().map_or(0, |waker| {
            let waker = WakerKey {
                task: waker.task.as_ref().map(|task| self.task_of(task)),
                stack: self.push_all(&waker.user, &waker.kernel),
                end: waker.user_end,
            };
            self.waker_id(&waker)
        });
        RowKey {
            task: self.task_of(&sample.task),
            stack: self.push_all(&sample.user, &sample.kernel),
            end: sample.user_end,
            reason: self.names.id(sample.reason.unwrap_or_default()),
            idle: sample.idle,
            waker,
            labels: 0,
        }
    }

    fn task_of(&mut self, task: &Task) -> TaskKey {
        self.task(&task.comm, task.tgid, task.tid)
    }

    fn push_all(&mut self, user: &[Frame], kernel: &[Frame]) -> StackId {
        let frames = user.iter().chain(kernel);
        frames.fold(0, |stack, frame| {
            let key = self.frame_of(frame);
            self.push(stack, key)
        })
    }

    fn frame_of(&mut self, frame: &Frame) -> FrameKey {
        let (file, line) = match &frame.line {
            Some((file, line)) => (self.names.id(file), *line),
            None => (NameId::NONE, 0),
        };
        FrameKey {
            name: self.names.id(&frame.name),
            module: self.names.id(frame.module.as_deref().unwrap_or_default()),
            file,
            line,
            address: frame.address,
            kind: frame.kind,
            inlined: frame.inlined,
        }
    }

    /// The same as a tool would have it. Other labels, comments and build IDs have no place there.
    pub fn to_profile(&self) -> Profile {
        let frames: Vec<Frame> = self.frames.all.iter().map(|key| self.frame(key)).collect();
        let values = self
            .header
            .values
            .iter()
            .map(|value| ValueType::new(lasting(&value.name), lasting(&value.unit)));
        let samples = self.rows().map(|row| self.sample(&row, &frames));
        Profile {
            tool: lasting(&self.header.tool),
            values: values.collect(),
            samples: samples.collect(),
            duration_ns: self.header.duration_ns,
        }
    }

    fn sample(&self, row: &Row<'_>, frames: &[Frame]) -> Sample {
        let (user, kernel) = self.parts(row.key.stack, frames);
        let waker = self.waker(row.key.waker).map(|waker| {
            let (user, kernel) = self.parts(waker.stack, frames);
            Arc::new(Waker {
                task: waker.task.map(|task| self.own_task(task)),
                user,
                user_end: waker.end,
                kernel,
            })
        });
        let reason = row.key.reason;
        Sample {
            task: self.own_task(row.key.task),
            reason: reason.is_some().then(|| lasting(self.text(reason))),
            user,
            user_end: row.key.end,
            kernel,
            waker,
            idle: row.key.idle,
            count: row.count,
            values: row.values.to_vec(),
        }
    }

    /// A stack as its user and its kernel part.
    fn parts(&self, stack: StackId, frames: &[Frame]) -> (Arc<[Frame]>, Arc<[Frame]>) {
        let mut ids: Vec<u32> = self.frame_ids(stack).collect();
        ids.reverse();
        let is_kernel = |id: &u32| self.frames.all[*id as usize].kind == FrameKind::Kernel;
        let boundary = ids.iter().position(is_kernel).unwrap_or(ids.len());
        let (user, kernel) = ids.split_at(boundary);
        let part = |ids: &[u32]| ids.iter().map(|id| frames[*id as usize].clone()).collect();
        (part(user), part(kernel))
    }

    fn own_task(&self, task: TaskKey) -> Task {
        Task::new(self.text(task.comm), task.pid, task.tid)
    }

    fn frame(&self, key: &FrameKey) -> Frame {
        let some = |name: NameId| name.is_some().then(|| Arc::from(self.text(name)));
        Frame {
            name: self.text(key.name).into(),
            kind: key.kind,
            inlined: key.inlined,
            module: some(key.module),
            address: key.address,
            line: some(key.file).map(|file| (file, key.line)),
        }
    }
}

/// The model's units and reasons are constants of the tools; those of a file become constants of the process, each once.
fn lasting(text: &str) -> &'static str {
    static ALL: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(text) {
        return known;
    }
    let new: &'static str = text.to_owned().leak();
    all.insert(new);
    new
}
