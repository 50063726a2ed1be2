//! Lines in order without a copy of any: they are a tree of their frames, and begin alike.

use std::cmp::Ordering;
use std::io::{self, Write};

use crate::escape;
use crate::recording::{Interned, NameId, Names};

/// Lines and their sums.
#[derive(Default)]
pub(super) struct Lines {
    names: Names,
    /// Number of the parent + 1 (0: none) and name.
    nodes: Interned<(u32, NameId)>,
    /// Of the line that ends with a node.
    sums: Vec<u64>,
}

/// What comes next: the line that ends with a node, or all that go on from it.
struct Step {
    node: usize,
    is_line: bool,
    /// Length of what is before the node.
    before: usize,
}

impl Lines {
    /// The number of a frame's text.
    pub(super) fn name(&mut self, text: &str) -> NameId {
        self.names.id(text)
    }

    /// Adds to the line of these frames, root first.
    pub(super) fn add(&mut self, frames: &[NameId], value: u64) {
        let Some((last, inner)) = frames.split_last() else {
            return;
        };
        let parent = inner
            .iter()
            .fold(0, |at, name| self.nodes.id(&(at, *name)) + 1);
        let guarded = escape::last_frame(self.names.text(*last).into()).into_owned();
        let last = self.names.id(&guarded);
        let node = self.nodes.id(&(parent, last)) as usize;
        self.sums.resize(self.nodes.all.len(), 0);
        self.sums[node] = self.sums[node].saturating_add(value);
    }

    /// Writes all lines, by their bytes, that do not round to 0.
    pub(super) fn write(
        self,
        rounded: impl Fn(u64) -> u64,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Self { names, nodes, sums } = self;
        // What finds nodes by their names is not needed any more, and goes before what finds children comes.
        let nodes = nodes.into_all();
        let tree = Tree {
            children: Children::of(&nodes),
            names,
            nodes,
            sums,
        };
        let mut line = String::new();
        let mut steps = Vec::new();
        tree.push_children(&mut steps, 0, 0);
        while let Some(step) = steps.pop() {
            line.truncate(step.before);
            line.push_str(tree.text(step.node));
            if !step.is_line {
                line.push(';');
                tree.push_children(&mut steps, step.node + 1, line.len());
                continue;
            }
            match rounded(tree.sums[step.node]) {
                0 => {}
                value => writeln!(out, "{line} {value}")?,
            }
        }
        Ok(())
    }
}

/// Lines that are complete.
struct Tree {
    names: Names,
    nodes: Vec<(u32, NameId)>,
    sums: Vec<u64>,
    children: Children,
}

impl Tree {
    fn text(&self, node: usize) -> &str {
        self.names.text(self.nodes[node].1)
    }

    /// Both steps of each child, the first one last.
    fn push_children(&self, steps: &mut Vec<Step>, parent: usize, before: usize) {
        let start = steps.len();
        for node in self.children.below(parent) {
            let step = |is_line| Step {
                node,
                is_line,
                before,
            };
            if self.sums[node] > 0 {
                steps.push(step(true));
            }
            if self.children.below(node + 1).next().is_some() {
                steps.push(step(false));
            }
        }
        steps[start..].sort_unstable_by(|a, b| self.compare(b, a));
    }

    /// A frame that others follow is followed by a semicolon.
    fn compare(&self, a: &Step, b: &Step) -> Ordering {
        let bytes = |step: &Step| {
            let text = self.text(step.node);
            let end: &[u8] = if step.is_line { b"" } else { b";" };
            text.bytes().chain(end.iter().copied())
        };
        bytes(a).cmp(bytes(b))
    }
}

/// The children of each node, by parent + 1.
struct Children {
    /// The first and then the next one, as number + 1.
    first: Vec<u32>,
    next: Vec<u32>,
}

impl Children {
    fn of(nodes: &[(u32, NameId)]) -> Self {
        let mut first = vec![0; nodes.len() + 1];
        let mut next = vec![0; nodes.len()];
        for (node, (parent, _)) in nodes.iter().enumerate() {
            next[node] = first[*parent as usize];
            first[*parent as usize] = node as u32 + 1;
        }
        Self { first, next }
    }

    fn below(&self, parent: usize) -> impl Iterator<Item = usize> {
        let mut at = self.first[parent];
        std::iter::from_fn(move || {
            let node = (at as usize).checked_sub(1)?;
            at = self.next[node];
            Some(node)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn the_order_is_that_of_whole_lines() {
        let all = [
            "a", "a b", "a b;c", "a;b", "a;b c", "a;b;c", "a;b:c", "a;bc;d", "b 1;2",
        ];
        let mut lines = Lines::default();
        for line in all.iter().rev() {
            let frames: Vec<_> = line.split(';').map(|text| lines.name(text)).collect();
            lines.add(&frames, 2);
            lines.add(&frames, 3);
        }
        let mut sorted = all.map(|line| format!("{line} 5\n"));
        sorted.sort_unstable_by(|a, b| a.rsplit_once(' ').cmp(&b.rsplit_once(' ')));
        let mut text = Vec::new();
        lines.write(|sum| sum, &mut text).expect("memory");
        assert_eq!(String::from_utf8(text).expect("text"), sorted.concat());
    }
}
