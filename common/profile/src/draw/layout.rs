//! Where boxes go.

use crate::tree::Tree;

/// Boxes narrower than this share of the whole are not drawn: a tenth of a pixel of 1,200.
pub(super) const NARROWEST: f64 = 1.0 / 12_000.0;

/// A box in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Placed {
    /// Number in the tree.
    pub node: u32,
    /// Left edge, 0 to 1.
    pub x: f64,
    /// Width, 0 to 1.
    pub width: f64,
    /// Boxes below it.
    pub depth: u32,
}

/// All boxes in their places.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// In order: parents first, left to right.
    pub placed: Vec<Placed>,
    /// Boxes that are too narrow, all above them included.
    pub omitted: usize,
    /// Rows.
    pub rows: u32,
}

impl Layout {
    /// Children stand side by side in the order of their names; widths are shares of the total by `weigh`.
    pub(super) fn of(tree: &Tree, weigh: impl Fn(u32) -> f64) -> Self {
        let children = children(tree);
        let whole = weigh(0).max(f64::MIN_POSITIVE);
        let mut layout = Self::default();
        let mut left = vec![Placed {
            node: 0,
            x: 0.0,
            width: 1.0,
            depth: 0,
        }];
        while let Some(placed) = left.pop() {
            layout.rows = layout.rows.max(placed.depth + 1);
            layout.placed.push(placed);
            let mut x = placed.x;
            let mut above = Vec::new();
            for &node in &children.sorted[children.range(placed.node)] {
                let width = weigh(node) / whole;
                if width >= NARROWEST {
                    above.push(Placed {
                        node,
                        x,
                        width,
                        depth: placed.depth + 1,
                    });
                }
                x += width;
            }
            left.extend(above.into_iter().rev());
        }
        layout.omitted = tree.nodes.len() - layout.placed.len();
        layout
    }
}

/// Children of all boxes in one list.
struct Children {
    starts: Vec<u32>,
    sorted: Vec<u32>,
}

impl Children {
    fn range(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }
}

fn children(tree: &Tree) -> Children {
    let mut starts = vec![0_u32; tree.nodes.len() + 1];
    for node in tree.nodes.iter().skip(1) {
        starts[node.parent as usize + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut next = starts.clone();
    let mut sorted = vec![0_u32; tree.nodes.len().saturating_sub(1)];
    for (id, node) in tree.nodes.iter().enumerate().skip(1) {
        let place = &mut next[node.parent as usize];
        sorted[*place as usize] = id as u32;
        *place += 1;
    }
    let children = Children { starts, sorted };
    let mut sorted = children.sorted.clone();
    for id in 0..tree.nodes.len() as u32 {
        sorted[children.range(id)].sort_by(|a, b| {
            let [a, b] = [a, b].map(|id| &tree.nodes[*id as usize]);
            tree.text(a).cmp(tree.text(b)).then(a.class.cmp(&b.class))
        });
    }
    Children { sorted, ..children }
}
