//! `-e EVENT`: by perf's names.

use std::str::FromStr;

use perf_event_open_sys::bindings as perf;
use session::traps;

/// What is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A counter of the kernel or the CPU.
    Counter {
        name: String,
        kind: u32,
        config: u64,
    },
    /// A kernel tracepoint.
    Tracepoint { category: String, name: String },
    /// A function of a program or library.
    Uprobe { path: String, symbol: String },
}

const SOFTWARE: &[(&str, u32)] = &[
    ("cpu-clock", perf::PERF_COUNT_SW_CPU_CLOCK),
    ("task-clock", perf::PERF_COUNT_SW_TASK_CLOCK),
    ("page-faults", perf::PERF_COUNT_SW_PAGE_FAULTS),
    ("faults", perf::PERF_COUNT_SW_PAGE_FAULTS),
    ("minor-faults", perf::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    ("major-faults", perf::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    ("context-switches", perf::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cs", perf::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cpu-migrations", perf::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("migrations", perf::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("alignment-faults", perf::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    ("emulation-faults", perf::PERF_COUNT_SW_EMULATION_FAULTS),
];

const HARDWARE: &[(&str, u32)] = &[
    ("cycles", perf::PERF_COUNT_HW_CPU_CYCLES),
    ("cpu-cycles", perf::PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", perf::PERF_COUNT_HW_INSTRUCTIONS),
    ("cache-references", perf::PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", perf::PERF_COUNT_HW_CACHE_MISSES),
    ("branches", perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    (
        "branch-instructions",
        perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
    ),
    ("branch-misses", perf::PERF_COUNT_HW_BRANCH_MISSES),
    ("bus-cycles", perf::PERF_COUNT_HW_BUS_CYCLES),
    (
        "stalled-cycles-frontend",
        perf::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    (
        "stalled-cycles-backend",
        perf::PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
    ),
    ("ref-cycles", perf::PERF_COUNT_HW_REF_CPU_CYCLES),
];

/// `CACHE-OPs` and `CACHE-OP-misses`, as perf spells them.
const CACHES: &[(&str, u32)] = &[
    ("L1-dcache", perf::PERF_COUNT_HW_CACHE_L1D),
    ("L1-icache", perf::PERF_COUNT_HW_CACHE_L1I),
    ("LLC", perf::PERF_COUNT_HW_CACHE_LL),
    ("dTLB", perf::PERF_COUNT_HW_CACHE_DTLB),
    ("iTLB", perf::PERF_COUNT_HW_CACHE_ITLB),
    ("branch", perf::PERF_COUNT_HW_CACHE_BPU),
    ("node", perf::PERF_COUNT_HW_CACHE_NODE),
];

/// Operations on a cache, by the words for all of them and for those that miss.
const CACHE_OPERATIONS: &[([&str; 2], u32)] = &[
    (["loads", "load-misses"], perf::PERF_COUNT_HW_CACHE_OP_READ),
    (
        ["stores", "store-misses"],
        perf::PERF_COUNT_HW_CACHE_OP_WRITE,
    ),
    (
        ["prefetches", "prefetch-misses"],
        perf::PERF_COUNT_HW_CACHE_OP_PREFETCH,
    ),
];

const CACHE_RESULTS: [u32; 2] = [
    perf::PERF_COUNT_HW_CACHE_RESULT_ACCESS,
    perf::PERF_COUNT_HW_CACHE_RESULT_MISS,
];

/// Most edits by which a near match may differ.
const NEAR: usize = 3;

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("tracepoint:") {
            let (category, name) = rest
                .split_once(':')
                .ok_or("write tracepoint:CATEGORY:NAME")?;
            return Ok(Self::Tracepoint {
                category: category.into(),
                name: name.into(),
            });
        }
        if let Some(rest) = text.strip_prefix("uprobe:") {
            let (path, symbol) = traps::file_and_function(rest);
            let path = path.ok_or("write uprobe:PATH:SYMBOL")?;
            return Ok(Self::Uprobe {
                path: path.into(),
                symbol: symbol.into(),
            });
        }
        counter(text).ok_or_else(|| unknown(text))
    }
}

fn counter(name: &str) -> Option<Event> {
    let event = |kind: u32, config: u64| {
        Some(Event::Counter {
            name: name.into(),
            kind,
            config,
        })
    };
    let find = |table: &[(&str, u32)]| {
        table
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, config)| (*config).into())
    };
    if let Some(config) = find(SOFTWARE) {
        return event(perf::PERF_TYPE_SOFTWARE, config);
    }
    if let Some(config) = find(HARDWARE) {
        return event(perf::PERF_TYPE_HARDWARE, config);
    }
    for (cache, id) in CACHES {
        let Some(rest) = name
            .strip_prefix(cache)
            .and_then(|rest| rest.strip_prefix('-'))
        else {
            continue;
        };
        for (words, operation) in CACHE_OPERATIONS {
            if let Some(at) = words.iter().position(|word| *word == rest) {
                let config = id | operation << 8 | CACHE_RESULTS[at] << 16;
                return event(perf::PERF_TYPE_HW_CACHE, config.into());
            }
        }
    }
    let raw = name.strip_prefix('r')?;
    event(perf::PERF_TYPE_RAW, u64::from_str_radix(raw, 16).ok()?)
}

fn unknown(name: &str) -> String {
    let mut names: Vec<(usize, &str)> = SOFTWARE
        .iter()
        .chain(HARDWARE)
        .map(|(known, _)| (strsim::levenshtein(name, known), *known))
        .collect();
    names.sort_unstable();
    let near: Vec<&str> = names
        .iter()
        .filter(|(edits, _)| *edits <= NEAR)
        .map(|(_, known)| *known)
        .take(3)
        .collect();
    if near.is_empty() {
        return "no such event; perf list names them, tracepoint:CAT:NAME and uprobe:PATH:SYMBOL work too".into();
    }
    format!("no such event; did you mean {}?", near.join(" or "))
}

impl Event {
    /// What the values are, as folded and human output have it.
    pub(crate) fn value_name(&self, weight: Option<&str>) -> &'static str {
        match (self, weight) {
            (_, Some(_)) => "weight",
            (Self::Counter { .. }, None) => "samples",
            _ => "events",
        }
    }

    /// As `page-faults`, `kmem:kmalloc` or `malloc`.
    pub(crate) fn short_name(&self) -> String {
        match self {
            Self::Counter { name, .. } => name.clone(),
            Self::Tracepoint { category, name } => format!("{category}:{name}"),
            Self::Uprobe { symbol, .. } => symbol.clone(),
        }
    }

    /// The event's words, with which it is asked for.
    pub(crate) fn full_name(&self) -> String {
        match self {
            Self::Counter { name, .. } => name.clone(),
            Self::Tracepoint { category, name } => format!("tracepoint:{category}:{name}"),
            Self::Uprobe { path, symbol } => format!("uprobe:{path}:{symbol}"),
        }
    }

    /// Whether it can be sampled so many times a second. The kernel's other software events come one by one, and
    /// tracepoints and uprobes are counted here.
    pub(crate) fn has_frequency(&self) -> bool {
        match self {
            Self::Counter { kind, .. } => *kind != perf::PERF_TYPE_SOFTWARE || self.is_clock(),
            _ => false,
        }
    }

    /// Whether the kernel counts time: a period is ns then.
    pub(crate) fn is_clock(&self) -> bool {
        matches!(self, Self::Counter { name, .. } if name.ends_with("-clock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfs_names_are_known() {
        let config = |name: &str| match name.parse::<Event>() {
            Ok(Event::Counter { kind, config, .. }) => (kind, config),
            other => panic!("{other:?}"),
        };
        assert_eq!(config("cpu-clock"), (1, 0));
        assert_eq!(config("cs"), (1, 3));
        assert_eq!(config("instructions"), (0, 1));
        assert_eq!(config("LLC-load-misses"), (3, 0x1_0002));
        assert_eq!(config("r01c0"), (4, 0x1c0));
        assert!(
            matches!("uprobe:/a:b/c:malloc".parse(), Ok(Event::Uprobe { path, .. }) if path == "/a:b/c")
        );
    }

    #[test]
    fn clocks_and_hardware_have_a_frequency() {
        let has = |name: &str| name.parse::<Event>().unwrap().has_frequency();
        for event in ["cpu-clock", "task-clock", "cycles", "LLC-loads", "r01c0"] {
            assert!(has(event), "{event}");
        }
        for event in ["page-faults", "cs", "tracepoint:a:b", "uprobe:libc:malloc"] {
            assert!(!has(event), "{event}");
        }
    }

    #[test]
    fn near_misses_are_offered() {
        assert_eq!(
            "cpu-clok".parse::<Event>().unwrap_err(),
            "no such event; did you mean cpu-clock?"
        );
        assert!(
            "nonsense"
                .parse::<Event>()
                .unwrap_err()
                .contains("perf list")
        );
    }
}
