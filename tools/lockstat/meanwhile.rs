//! Doings of threads while others waited for them.

/// Time by what a thread did, ns: `enum meanwhile` of the BPF side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meanwhile(pub(crate) [u64; 6]);

impl Meanwhile {
    /// Stable lower-case words, and those for people; the last one: it was longer ago than the thread remembers.
    pub(crate) const WORDS: [(&'static str, &'static str); 6] = [
        ("on_cpu", "on a CPU"),
        ("runqueue", "waiting for a CPU"),
        ("disk", "waiting for disk"),
        ("others", "waiting for others"),
        ("asleep", "asleep"),
        ("unknown", "not seen"),
    ];

    /// Time of which it is known, and not known, what the thread did, ns.
    pub(crate) fn known(&self) -> [u64; 2] {
        let [known @ .., unknown] = self.0;
        [known.iter().sum(), unknown]
    }

    /// Time on a CPU, waiting for one, and off it; `None`: most of it is not known.
    pub(crate) fn states(&self) -> Option<[u64; 3]> {
        let [on_cpu, queued, ..] = self.0;
        let [known, unknown] = self.known();
        (known > unknown).then(|| [on_cpu, queued, known - on_cpu - queued])
    }

    pub(super) fn add(&mut self, more: &Self) {
        for (sum, ns) in self.0.iter_mut().zip(more.0) {
            *sum += ns;
        }
    }
}
