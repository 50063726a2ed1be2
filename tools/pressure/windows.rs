//! A collection in windows: what tasks lose in one stands for the stratum of time around it. What the kernel counts itself,
//! pressure and bytes, is taken as it is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use anyhow::Result;
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;
use serde_json::{Value, json};
use trace::budget::{Estimate, Looked, Series, Window, Windowed, open_edges, shut_edges};
use trace::iterate;
use trace::loader::section;

use crate::capture::Capture;
use crate::ended::{Ended, Record, used_ns};
use crate::harvest::TaskStock;
use crate::victims::Filter;

/// What events run, and what is detached between windows. Reclaim is rare, and lasts longer than a window does.
pub(crate) const GATED: [&str; 6] = [
    "sched_switch",
    "sched_switch_pre_5_18",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "block_bio_queue",
];

/// Process and thread.
type Key = (u32, u32);

/// From so many tasks on those that have ended are put together.
const MANY: usize = 32 << 10;

/// Estimates of one task.
struct Sum {
    /// What is not estimated, and who it is.
    task: TaskStock,
    lost: [f64; 3],
    caused: f64,
    ios: f64,
    /// The latest window that it was in.
    window: u64,
}

/// The windows of an interval so far.
#[derive(Default)]
pub(crate) struct Sums {
    tasks: HashMap<Key, Sum>,
    windows: u64,
    /// Tasks beyond [`MANY`] that were found alive when there were too many.
    alive: usize,
    ended: Ended<Sum>,
    /// Those that waited when the latest window ended.
    open: Vec<Key>,
    lost: [Series; 3],
    looked: Looked,
}

/// An interval.
pub(crate) struct Finished {
    pub(crate) tasks: Vec<TaskStock>,
    /// `None`: nothing was left out.
    pub(crate) estimates: Option<Estimates>,
    /// Tasks that have ended and are told no name of.
    pub(crate) unnamed: u64,
}

/// How sure the numbers of an interval are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimates {
    /// By `ON_…`, ns, all tasks of what was asked about.
    pub(crate) lost: [Estimate; 3],
    /// Share of the time that was looked at.
    pub(crate) looked: f64,
}

/// The tool at the edge of a window.
pub(crate) struct Windows<'a>(pub(crate) &'a mut Capture);

impl Windowed for Windows<'_> {
    fn object(&self) -> &Object {
        self.0.skel.object()
    }

    fn open(&mut self, length_ns: Option<u64>, first: bool) -> Result<u64> {
        let bss = section(self.0.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.window += 1;
        let links = &self.0.skel.links;
        if first {
            iterate::run(links.seed_members.as_ref())?;
        }
        iterate::run(links.renew_members.as_ref())?;
        self.0.looks_always = length_ns.is_none();
        let bss = section(self.0.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        Ok(open_edges(start_ns, end_ns, length_ns))
    }

    fn shut(&mut self) -> Result<u64> {
        let bss = section(self.0.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let now = shut_edges(&mut bss.window_end_ns);
        bss.edge_ns = bss.window_end_ns;
        // Still attached: what tasks do now is what they did at the window's end, or has been seen.
        self.0.take_stock()?;
        Ok(now)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        self.0.absorb_exited()?;
        self.0.take_window(window)?;
        let bss = section(self.0.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        // What is known now holds no longer, and no time counts until the next one opens.
        bss.window += 1;
        bss.window_start_ns = 0;
        Ok(())
    }
}

impl Sums {
    /// Adds what a window has brought; `filter`: what was asked about.
    pub(crate) fn add(&mut self, tasks: Vec<TaskStock>, window: &Window, filter: &Filter) {
        // In every window we have just run, and are about to: that stands for nothing.
        let own_tgid = std::process::id();
        let tasks: Vec<TaskStock> = tasks
            .into_iter()
            .filter(|task| task.tgid != own_tgid)
            .collect();
        let mut wanted_ns = [0; 3];
        for task in tasks.iter().filter(|task| filter.is_wanted(task)) {
            for (sum, lost_ns) in wanted_ns.iter_mut().zip(task.lost_ns) {
                *sum += lost_ns;
            }
        }
        for (series, lost_ns) in self.lost.iter_mut().zip(wanted_ns) {
            series.push(lost_ns as f64, window.open_ns(), window.stratum_ns);
        }
        self.looked.add(window);
        self.windows += 1;
        for key in self.open.drain(..) {
            if let Some(sum) = self.tasks.get_mut(&key) {
                sum.task.open = 0;
            }
        }
        for task in tasks {
            if task.open != 0 {
                self.open.push(key_of(&task));
            }
            self.add_task(task, window.weight(), filter);
        }
        if self.tasks.len() > MANY + self.alive {
            // Whoever was not in this window may have ended unseen.
            let is_gone = |(tgid, tid): &Key, sum: &mut Sum| {
                sum.task.has_exited
                    || sum.window != self.windows
                        && !Path::new(&format!("/proc/{tgid}/task/{tid}")).exists()
            };
            let gone = self.tasks.extract_if(is_gone);
            self.ended.extend(gone.map(|(_, sum)| sum), filter);
            self.alive = 2 * self.tasks.len();
        }
    }

    /// Adds what the kernel has counted of tasks, beside windows.
    pub(crate) fn add_counted(&mut self, tasks: Vec<TaskStock>, filter: &Filter) {
        for task in tasks {
            let before = self.tasks.get(&key_of(&task)).map(|sum| &sum.task);
            let (open, open_ns) = before.map_or((0, 0), |task| (task.open, task.open_ns));
            let task = TaskStock {
                open,
                open_ns,
                ..task
            };
            self.add_task(task, 1.0, filter);
        }
    }

    /// What totals of an interval of `elapsed_ns` are to be multiplied by.
    pub(crate) fn scale(&self, elapsed_ns: u64) -> f64 {
        self.looked.scale(elapsed_ns)
    }

    fn add_task(&mut self, task: TaskStock, weight: f64, filter: &Filter) {
        let mut seen = Sum::of(task, weight, self.windows);
        if seen.task.many.is_some() {
            self.ended.extend([seen], filter);
            return;
        }
        match self.tasks.entry(key_of(&seen.task)) {
            Entry::Vacant(place) => {
                place.insert(seen);
            }
            Entry::Occupied(mut known) => {
                let before = known.get();
                seen.absorb_estimates(before);
                seen.task.read_bytes += before.task.read_bytes;
                seen.task.written_bytes += before.task.written_bytes;
                seen.task.faults += before.task.faults;
                seen.task.has_exited |= before.task.has_exited;
                known.insert(seen);
            }
        }
    }

    /// The interval, `elapsed_ns` long.
    pub(crate) fn finish(mut self, elapsed_ns: u64) -> Finished {
        let scale = self.looked.scale(elapsed_ns);
        let whole = |value: f64| (scale * value).round() as u64;
        let (ended, unnamed) = self.ended.take();
        let sums = self.tasks.into_values().chain(ended);
        let tasks = sums.map(|sum| TaskStock {
            lost_ns: sum.lost.map(whole),
            caused_ns: whole(sum.caused),
            ios: whole(sum.ios),
            ..sum.task
        });
        let estimates = (!self.looked.is_exact()).then(|| Estimates {
            lost: self.lost.each_ref().map(|series| {
                if self.looked.is_any() {
                    series.estimate(scale)
                } else {
                    Estimate::UNKNOWN
                }
            }),
            looked: self.looked.share(elapsed_ns),
        });
        Finished {
            tasks: tasks.collect(),
            estimates,
            unnamed,
        }
    }
}

impl Sum {
    fn of(task: TaskStock, weight: f64, window: u64) -> Self {
        Self {
            window,
            lost: task.lost_ns.map(|lost_ns| weight * lost_ns as f64),
            caused: weight * task.caused_ns as f64,
            ios: weight * task.ios as f64,
            task,
        }
    }

    fn absorb_estimates(&mut self, other: &Self) {
        for (sum, lost) in self.lost.iter_mut().zip(other.lost) {
            *sum += lost;
        }
        self.caused += other.caused;
        self.ios += other.ios;
    }
}

impl Record for Sum {
    fn task(&self) -> &TaskStock {
        &self.task
    }

    fn task_mut(&mut self) -> &mut TaskStock {
        &mut self.task
    }

    fn absorb(&mut self, other: &Self) {
        self.task.absorb(&other.task);
        self.absorb_estimates(other);
    }

    fn weight_ns(&self) -> f64 {
        self.caused + self.lost.iter().sum::<f64>() + used_ns(&self.task)
    }
}

fn key_of(task: &TaskStock) -> Key {
    (task.tgid, task.tid)
}

impl Estimates {
    /// Whether there was a window at all.
    pub(crate) fn is_any(&self) -> bool {
        self.looked > 0.0
    }

    /// The line below the table.
    pub(crate) fn describe(&self) -> String {
        if !self.is_any() {
            return "not looked at: who lost and who caused is not known (--max-overhead)".into();
        }
        let names = ["CPU", "memory", "disk"].into_iter().zip(self.lost);
        let sure: Vec<String> = names
            .filter(|(_, lost)| lost.total > 0.0)
            .map(|(name, lost)| format!("{name} {}", lost.describe()))
            .collect();
        let lost = match &sure[..] {
            [] => "no time was seen lost".into(),
            sure => format!("time lost for want of {}", sure.join(", ")),
        };
        format!(
            "estimated, looking {:.1}% of the time: {lost}",
            100.0 * self.looked
        )
    }

    /// For JSON.
    pub(crate) fn to_json(self) -> Value {
        let [cpu, memory, io] = self.lost.map(|lost| lost.to_json());
        json!({"cpu_ns": cpu, "memory_ns": memory, "io_ns": io, "looked": self.looked})
    }
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
