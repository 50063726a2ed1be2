//! Samples as a tree of boxes: equal names below equal parents are one box. Two sides, so that two profiles can be compared.

use crate::folded::Idle;
use crate::frame::FrameKind;
use crate::recording::{Boxes, Cell, CellKind, Map, NameId, Names, Recording, Row, RowKey};

/// What a box shows, and so its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A thread's name.
    Task,
    /// Why a thread waited.
    Reason,
    /// Waits of a thread with nothing to do.
    Idle,
    /// A function, of a format that says no more.
    Function,
    /// A function of a program or library.
    User,
    /// One that the compiler inlined.
    Inlined,
    /// Code made at run time.
    Jit,
    /// The kernel's.
    Kernel,
    /// A function of the thread that ended the wait.
    Waker,
    /// Between parts of a stack.
    Separator,
}

impl Class {
    /// All of them with their words, in the order of legends.
    pub(crate) const ALL: [(Self, &'static str); 10] = [
        (Self::Task, "thread"),
        (Self::Reason, "reason of the wait"),
        (Self::Idle, "idle"),
        (Self::Function, "function"),
        (Self::User, "user"),
        (Self::Inlined, "inlined"),
        (Self::Jit, "JIT"),
        (Self::Kernel, "kernel"),
        (Self::Waker, "waker (its callers above)"),
        (Self::Separator, "separator"),
    ];

    /// What legends and tooltips say.
    pub fn word(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        all.find(|(class, _)| *class == self)
            .map_or("", |(_, word)| word)
    }

    fn of(cell: &Cell) -> Self {
        match (cell.kind, cell.frame.inlined) {
            (CellKind::Task, _) => Self::Task,
            (CellKind::Reason, _) => Self::Reason,
            (CellKind::Idle, _) => Self::Idle,
            (CellKind::Separator, _) => Self::Separator,
            (CellKind::Waker, _) => Self::Waker,
            (CellKind::Code(FrameKind::Kernel), _) => Self::Kernel,
            (CellKind::Code(_), true) => Self::Inlined,
            (CellKind::Code(FrameKind::Jit), false) => Self::Jit,
            (CellKind::Code(FrameKind::User), false) => Self::User,
            (CellKind::Code(FrameKind::Unknown), false) => Self::Function,
        }
    }
}

/// What one profile has in a box.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Side {
    /// Value of the box and all above it.
    pub total: u64,
    /// Of the box alone.
    pub own: u64,
    /// Samples or intervals behind `total`.
    pub count: u64,
    /// Sum of squares of what single samples weigh, as well as it is known; for judging what chance may do.
    pub squares: f64,
}

/// A box.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is called, in [`Tree::names`].
    pub name: NameId,
    /// Its file; of several, the first that was seen.
    pub module: NameId,
    /// What it is.
    pub class: Class,
    /// The box that it stands on; the root stands on itself.
    pub parent: u32,
    /// The first profile and the second.
    pub sides: [Side; 2],
}

/// Boxes by number; 0 is the root, children come after parents.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Texts of all boxes.
    pub names: Names,
    /// The boxes.
    pub nodes: Vec<Node>,
    ids: Map<(u32, NameId, Class), u32>,
}

/// How samples become paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paths {
    /// From the leaf: what is called, on what calls it.
    pub inverted: bool,
    /// The reason of a wait below its stack.
    pub reason: bool,
    /// Idle waits: folded under one box, or like others, or alone.
    pub idle: Idle,
    /// Differences between inlined and not, and between kinds, are none.
    pub names_only: bool,
}

impl Default for Tree {
    fn default() -> Self {
        let mut names = Names::default();
        let root = Node {
            name: names.id("all"),
            module: NameId::NONE,
            class: Class::Separator,
            parent: 0,
            sides: [Side::default(); 2],
        };
        Self {
            names,
            nodes: vec![root],
            ids: Map::default(),
        }
    }
}

impl Tree {
    /// The tree of one profile.
    pub fn of(recording: &Recording, paths: Paths) -> Self {
        let mut tree = Self::default();
        tree.add(recording, paths, 0);
        tree
    }

    /// Adds a profile to a side.
    pub fn add(&mut self, recording: &Recording, paths: Paths, side: usize) {
        let mut names = Translated {
            ids: vec![None; recording.names.len()],
            reasons: Map::default(),
        };
        let is_count = matches!(recording.unit(), "count" | "");
        for row in recording.rows() {
            if paths.idle == Idle::Only && !row.key.idle {
                continue;
            }
            let weight = recording.weight(&row);
            if weight == 0 {
                continue;
            }
            let added = Side {
                total: weight,
                own: 0,
                count: row.count,
                squares: squares(&row, weight, is_count),
            };
            self.add_row(recording, row.key, paths, (side, added), &mut names);
        }
    }

    fn add_row(
        &mut self,
        recording: &Recording,
        key: &RowKey,
        paths: Paths,
        (side, added): (usize, Side),
        names: &mut Translated,
    ) {
        let mut at = 0;
        self.nodes[0].sides[side].add(&added);
        for cell in cells(recording, key, paths) {
            let class = if paths.names_only && matches!(cell.kind, CellKind::Code(_)) {
                Class::Function
            } else {
                Class::of(&cell)
            };
            let name = names.get(recording, &cell, &mut self.names);
            at = self.child(at, name, class);
            let node = &mut self.nodes[at as usize];
            node.sides[side].add(&added);
            if !node.module.is_some() && cell.frame.module.is_some() {
                let module = recording.text(cell.frame.module);
                node.module = self.names.id(module);
            }
        }
        let own = &mut self.nodes[at as usize].sides[side].own;
        *own = own.saturating_add(added.total);
    }

    fn child(&mut self, parent: u32, name: NameId, class: Class) -> u32 {
        let next = u32::try_from(self.nodes.len()).expect("memory ends before 2^32 boxes");
        let id = *self.ids.entry((parent, name, class)).or_insert(next);
        if id == next {
            self.nodes.push(Node {
                name,
                module: NameId::NONE,
                class,
                parent,
                sides: [Side::default(); 2],
            });
        }
        id
    }

    /// What a box says.
    pub fn text(&self, node: &Node) -> &str {
        self.names.text(node.name)
    }

    /// What boxes have alone, without what is above them, by number.
    pub fn own_sides(&self) -> Vec<[Side; 2]> {
        let mut alone: Vec<[Side; 2]> = self.nodes.iter().map(|node| node.sides).collect();
        for node in self.nodes.iter().skip(1) {
            for (below, side) in alone[node.parent as usize].iter_mut().zip(&node.sides) {
                below.count = below.count.saturating_sub(side.count);
                // A sum of many may end beside zero.
                below.squares = (below.squares - side.squares).max(0.0);
            }
        }
        for side in alone.iter_mut().flatten() {
            side.total = side.own;
        }
        alone
    }

    /// Names from the root to a box, without the root.
    pub fn path(&self, mut id: usize) -> Vec<&str> {
        let mut path = Vec::new();
        while id != 0 {
            path.push(self.text(&self.nodes[id]));
            id = self.nodes[id].parent as usize;
        }
        path.reverse();
        path
    }

    /// Totals of both profiles.
    pub fn totals(&self) -> [u64; 2] {
        self.nodes[0].sides.map(|side| side.total)
    }
}

impl Side {
    fn add(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        self.count = self.count.saturating_add(other.count);
        self.squares += other.squares;
    }
}

/// Waits of one stack are taken to be spread as times between independent events are: their squares are then, on average,
/// twice the square of their mean. Samples weigh the same each.
fn squares(row: &Row<'_>, weight: u64, is_count: bool) -> f64 {
    let (weight, count) = (weight as f64, row.count.max(1) as f64);
    let mean_square = weight * weight / count;
    if is_count {
        mean_square
    } else {
        2.0 * mean_square
    }
}

/// The boxes of a sample in the order that a graph stacks them.
fn cells(recording: &Recording, key: &RowKey, paths: Paths) -> Vec<Cell> {
    let boxes = Boxes {
        idle: paths.idle == Idle::Fold,
        reason: paths.reason && !paths.inverted,
        delimiter: false,
    };
    let task = Cell {
        kind: CellKind::Task,
        frame: crate::recording::FrameKey::named(key.task.comm),
    };
    if paths.inverted {
        let alone = RowKey { waker: 0, ..*key };
        let mut cells = recording.chain(&alone, boxes);
        cells.reverse();
        cells.push(task);
        return idle_first(cells);
    }
    let mut cells = vec![task];
    cells.extend(recording.chain(key, boxes));
    idle_first(cells)
}

/// One box for all that is idle stands at the root, beside those of threads that have something to do.
fn idle_first(mut cells: Vec<Cell>) -> Vec<Cell> {
    if let Some(at) = cells.iter().position(|cell| cell.kind == CellKind::Idle) {
        cells[..=at].rotate_right(1);
    }
    cells
}

/// Numbers of a recording's names in a tree's.
struct Translated {
    ids: Vec<Option<NameId>>,
    reasons: Map<NameId, NameId>,
}

impl Translated {
    fn get(&mut self, recording: &Recording, cell: &Cell, names: &mut Names) -> NameId {
        let name = cell.frame.name;
        if cell.kind == CellKind::Reason {
            let text = recording.cell_text(cell);
            return *self.reasons.entry(name).or_insert_with(|| names.id(&text));
        }
        *self.ids[name.index()].get_or_insert_with(|| match recording.text(name) {
            "" => names.id("[no name]"),
            text => names.id(text),
        })
    }
}
