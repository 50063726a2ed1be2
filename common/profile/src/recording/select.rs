//! Parts of recordings, and sums of several.

use super::{FrameKey, Labels, Map, NameId, Recording, Row, RowKey, StackId, TaskKey, WakerKey};

/// Numbers of one recording's things in another.
pub(crate) struct Translation {
    frames: Vec<Option<FrameKey>>,
    stacks: Map<StackId, StackId>,
}

impl Translation {
    /// Nothing is translated yet.
    pub(crate) fn new(from: &Recording) -> Self {
        Self {
            frames: vec![None; from.frames.all.len()],
            stacks: Map::default(),
        }
    }

    fn name(from: &Recording, name: NameId, to: &mut Recording) -> NameId {
        to.names.id(from.text(name))
    }

    fn frame(&mut self, from: &Recording, index: u32, to: &mut Recording) -> FrameKey {
        if let Some(known) = self.frames[index as usize] {
            return known;
        }
        let frame = &from.frames.all[index as usize];
        let translated = FrameKey {
            name: Self::name(from, frame.name, to),
            module: Self::name(from, frame.module, to),
            file: Self::name(from, frame.file, to),
            ..*frame
        };
        self.frames[index as usize] = Some(translated);
        translated
    }

    fn stack(&mut self, from: &Recording, stack: StackId, to: &mut Recording) -> StackId {
        // From the leaf down to what is known already, and up again.
        let mut pending = Vec::new();
        let mut at = stack;
        let mut known = 0;
        while at != 0 {
            if let Some(found) = self.stacks.get(&at) {
                known = *found;
                break;
            }
            pending.push(at);
            at = from.nodes.all[at as usize - 1].0;
        }
        for id in pending.into_iter().rev() {
            let frame = self.frame(from, from.nodes.all[id as usize - 1].1, to);
            known = to.push(known, frame);
            self.stacks.insert(id, known);
        }
        known
    }

    fn task(from: &Recording, task: TaskKey, to: &mut Recording) -> TaskKey {
        TaskKey {
            comm: Self::name(from, task.comm, to),
            ..task
        }
    }

    /// A key in the other recording.
    pub(crate) fn key(&mut self, from: &Recording, key: &RowKey, to: &mut Recording) -> RowKey {
        let labels: Labels = from.labels(key.labels).to_vec();
        let labels = labels
            .into_iter()
            .map(|(name, text)| (Self::name(from, name, to), Self::name(from, text, to)))
            .collect();
        let waker = from.waker(key.waker).map_or(0, |waker| {
            let waker = WakerKey {
                task: waker.task.map(|task| Self::task(from, task, to)),
                stack: self.stack(from, waker.stack, to),
                end: waker.end,
            };
            to.waker_id(&waker)
        });
        RowKey {
            task: Self::task(from, key.task, to),
            stack: self.stack(from, key.stack, to),
            reason: Self::name(from, key.reason, to),
            waker,
            labels: to.label_set(labels),
            ..*key
        }
    }
}

impl Recording {
    /// Adds all of another recording. The values must be the same in number and unit.
    pub fn absorb(&mut self, other: &Self) {
        let mut translation = Translation::new(other);
        for row in other.rows() {
            let key = translation.key(other, row.key, self);
            self.add(&key, row.count, row.values);
        }
    }

    /// The rows that a condition holds for, as a recording of their own.
    pub fn filtered(&self, mut keep: impl FnMut(&Row<'_>) -> bool) -> Self {
        let mut kept = Self::new(self.header.clone());
        let mut translation = Translation::new(self);
        for row in self.rows().filter(|row| keep(row)) {
            let key = translation.key(self, row.key, &mut kept);
            kept.add(&key, row.count, row.values);
        }
        kept
    }

    /// Rows with one value: what graphs draw, times a factor.
    pub(crate) fn weighed(&self, header: super::Header, factor: u64) -> Self {
        let mut weighed = Self::new(header);
        let mut translation = Translation::new(self);
        for row in self.rows() {
            let key = translation.key(self, row.key, &mut weighed);
            let value = self.weight(&row).saturating_mul(factor);
            weighed.add(&key, row.count, &[value]);
        }
        weighed
    }

    /// Leaves one value of several; `false` where there is none of that name.
    pub fn keep_value(&mut self, name: &str) -> bool {
        let mut values = self.header.values.iter();
        let at = values.position(|value| value.name == name);
        at.inspect(|at| self.keep(*at)).is_some()
    }

    /// Leaves the value that graphs draw, as far as there is one.
    pub fn keep_first_value(&mut self) {
        if !self.header.values.is_empty() {
            self.keep(0);
        }
    }

    fn keep(&mut self, at: usize) {
        let width = self.header.values.len();
        self.header.values = vec![self.header.values[at].clone()];
        self.values = self.values.chunks(width).map(|values| values[at]).collect();
    }
}
