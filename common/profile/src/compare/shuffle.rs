//! What chance does to the largest of many growths: both profiles' samples are dealt again to two profiles, many times.
//!
//! Functions that call each other have nearly the same samples, others exclude each other; a correction that takes their
//! tests for independent ones, as Bonferroni's, asks too much of each. The distribution of the largest growth over all of them
//! knows what they share (P. H. Westfall and S. S. Young, Resampling-Based Multiple Testing, 1993).

use super::Judged;
use super::random::Random;
use crate::recording::{Interned, Map};
use crate::tree::{Side, Tree};

/// Boxes whose samples are looked at as one.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Boxes with all above them; none above another.
    pub(super) whole: Vec<u32>,
    /// Boxes alone.
    pub(super) alone: Vec<u32>,
}

impl Part {
    pub(super) fn whole(boxes: Vec<u32>) -> Self {
        Self {
            whole: boxes,
            alone: Vec::new(),
        }
    }

    pub(super) fn alone(boxes: Vec<u32>) -> Self {
        Self {
            whole: Vec::new(),
            alone: boxes,
        }
    }
}

/// Of all comparisons of equal profiles, as many have a growth beyond [`Shuffled::least`].
const FALSE_ALARMS: f64 = 0.01;

/// Deals at most, and fewer where there is much to deal: the level holds for any number.
const DEALS: usize = 4_999;
const FEWEST_DEALS: usize = 199;
/// Heaps of samples that are dealt in all; as many take a second.
const MOST_DRAWS: usize = 50_000_000;

/// Samples that are in the same parts.
#[derive(Clone, Default)]
struct Heap {
    /// The heap that is in all of these parts but one, and this part; heap 0 is in none.
    parent: u32,
    part: u32,
    /// Values of both profiles.
    total: f64,
    squares: f64,
    /// As many equal samples vary as these do.
    samples: u64,
}

/// Heaps, parents first.
fn heaps(tree: &Tree, own: &[[Side; 2]], parts: &[(&Part, Judged)]) -> Vec<Heap> {
    let mut begun: Map<u32, Vec<u32>> = Map::default();
    let mut alone: Map<u32, Vec<u32>> = Map::default();
    for (number, (part, _)) in (0..).zip(parts) {
        for (boxes, of) in [(&part.whole, &mut begun), (&part.alone, &mut alone)] {
            for id in boxes {
                of.entry(*id).or_default().push(number);
            }
        }
    }
    // A heap by the one before it and the part that is more.
    let mut numbers: Interned<(u32, u32)> = Interned::default();
    let mut heaps = vec![Heap::default()];
    let mut inside = vec![0; tree.nodes.len()];
    for (id, node) in (0..).zip(&tree.nodes) {
        let mut descend = |from: u32, parts: &Map<u32, Vec<u32>>| {
            let more = parts.get(&id).into_iter().flatten();
            more.fold(from, |heap, part| numbers.id(&(heap, *part)) + 1)
        };
        inside[id as usize] = descend(inside[node.parent as usize], &begun);
        let heap = descend(inside[id as usize], &alone);
        heaps.resize(numbers.all.len() + 1, Heap::default());
        let heap = &mut heaps[heap as usize];
        for side in &own[id as usize] {
            heap.total += side.total as f64;
            heap.squares += side.squares;
        }
    }
    for (heap, (parent, part)) in heaps.iter_mut().skip(1).zip(&numbers.all) {
        (heap.parent, heap.part) = (*parent, *part);
    }
    for heap in &mut heaps {
        let samples = heap.total * heap.total / heap.squares.max(f64::MIN_POSITIVE);
        heap.samples = if heap.total > 0.0 {
            samples.round().max(1.0) as u64
        } else {
            0
        };
    }
    heaps
}

/// Of all values, those of each part.
fn shares(heaps: &[Heap], parts: usize, whole: f64) -> Vec<f64> {
    let mut totals: Vec<f64> = heaps.iter().map(|heap| heap.total).collect();
    let mut shares = vec![0.0; parts];
    for (at, heap) in heaps.iter().enumerate().skip(1).rev() {
        shares[heap.part as usize] += totals[at] / whole;
        totals[heap.parent as usize] += totals[at];
    }
    shares
}

/// How far a growth is beyond the limit, in standard errors of what chance does to it; nothing up to the limit.
pub(super) fn excess(growth: f64, error: f64, limit: f64) -> f64 {
    if growth <= limit {
        return 0.0;
    }
    (growth - limit) / error.max(f64::MIN_POSITIVE)
}

/// The excess that the largest of these parts has by chance once in a hundred times, and no more often.
pub(super) fn least_excess(
    tree: &Tree,
    own: &[[Side; 2]],
    parts: &[(&Part, Judged)],
    limit: f64,
) -> f64 {
    let heaps = heaps(tree, own, parts);
    let totals = tree.nodes[0].sides.map(|side| side.total as f64);
    let whole = totals[0] + totals[1];
    let part_of_new = totals[1] / whole;
    let per_value = 1.0 / totals[0] + 1.0 / totals[1];
    let shares = shares(&heaps, parts.len(), whole);
    let deals = (MOST_DRAWS / heaps.len()).clamp(FEWEST_DEALS, DEALS);

    let mut random = Random::new(deals as u64);
    let mut beyond = vec![0.0; heaps.len()];
    let mut growths = vec![0.0; parts.len()];
    let mut largest: Vec<f64> = Vec::with_capacity(deals);
    for _ in 0..deals {
        for (heap, beyond) in heaps.iter().zip(&mut beyond) {
            let dealt = random.binomial(heap.samples, part_of_new);
            let dealt = dealt / heap.samples.max(1) as f64;
            *beyond = heap.total * (dealt - part_of_new);
        }
        growths.fill(0.0);
        for (at, heap) in heaps.iter().enumerate().skip(1).rev() {
            growths[heap.part as usize] += beyond[at];
            beyond[heap.parent as usize] += beyond[at];
        }
        // The new profile has got more or less than its part: shares are of what it has got.
        let all = beyond[0];
        let excesses = growths.iter().zip(&shares).zip(parts);
        let excesses = excesses.map(|((growth, share), (_, judged))| {
            excess((growth - share * all) * per_value, judged.error, limit)
        });
        largest.push(excesses.fold(0.0, f64::max));
    }
    largest.sort_by(|a, b| b.total_cmp(a));
    // The comparison itself counts as a deal (B. Phipson and G. K. Smyth, 2010).
    let beyond = (FALSE_ALARMS * (deals + 1) as f64) as usize - 1;
    largest[beyond]
}
