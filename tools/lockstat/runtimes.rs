//! Processes that run an async runtime: its tasks wait for each other without a thread that does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use host::task::comm_of;
use profile::text::{WIDTH, comm, sentence};
use profile::units;
use serde_json::{Value, json};
use stacks::StackTable;

use crate::lockstat::futex::{Rules, calls};
use crate::lockstat::row::LockRow;

/// The runtime of Go's programs, as the rules call it: its goroutines are no tasks to their makers.
const GO: &str = "go";
/// Processes that are remembered.
const MOST: usize = 1024;

/// Processes by PID, with their names and what their runtimes are called.
#[derive(Debug, Default)]
pub(crate) struct Runtimes(BTreeMap<u32, (Arc<str>, &'static str)>);

impl Runtimes {
    /// Looks for runtimes on the stacks of those who waited.
    pub(crate) fn look_at<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a LockRow>,
        rules: &Rules,
        stacks: &mut StackTable,
    ) {
        let mut known: HashMap<u64, Option<&'static str>> = HashMap::new();
        for waiter in rows.flat_map(|row| &row.waiters) {
            let stack = waiter.user;
            let runtime = *known
                .entry(stack)
                .or_insert_with(|| rules.runtime_of(calls(&stacks.user_names(stack))));
            if let Some(runtime) = runtime {
                self.add(waiter.task.tgid, &waiter.task.comm, runtime);
            }
        }
    }

    /// Looks for one among the files that a process has loaded.
    pub(crate) fn look_at_files(&mut self, tgid: u32, rules: &Rules, stacks: &mut StackTable) {
        let symbolizer = stacks.symbolizer();
        let files = symbolizer.code_files(tgid);
        let files = files.iter().map(|file| ("", Some(&**file)));
        let of_file = rules.runtime_of(files);
        let runtime = of_file.or_else(|| symbolizer.runs_go(tgid).then_some(GO));
        if let Some((runtime, name)) = runtime.zip(comm_of(tgid)) {
            self.add(tgid, &name, runtime);
        }
    }

    fn add(&mut self, tgid: u32, name: &Arc<str>, runtime: &'static str) {
        if self.0.len() < MOST {
            let of_process = || (Arc::clone(name), runtime);
            self.0.entry(tgid).or_insert_with(of_process);
        }
    }

    /// Lines for people, if there are any.
    pub(crate) fn describe(&self) -> Vec<String> {
        let (go, others): (Vec<_>, Vec<_>) = self.0.iter().partition(|(_, (_, name))| *name == GO);
        let mut lines = lines(
            &others,
            |runtimes, are_several| match are_several {
                false => format!("runs {runtimes}, an async runtime:"),
                true => format!("run async runtimes ({runtimes}):"),
            },
            "tasks' waits are not shown",
        );
        let run = |_: &str, are_several| match are_several {
            false => "runs Go:".to_owned(),
            true => "run Go:".to_owned(),
        };
        let waits = "goroutines' waits (sync.Mutex, channels) are not shown";
        lines.extend(self::lines(&go, run, waits));
        lines
    }

    /// `[{"comm", "pid", "runtime"}, …]`
    pub(crate) fn to_json(&self) -> Value {
        let of_process = |(tgid, (name, runtime)): (&u32, &(Arc<str>, &'static str))| json!({"comm": **name, "pid": tgid, "runtime": runtime});
        self.0.iter().map(of_process).collect()
    }
}

/// A process by its PID, with its name and what its runtime is called.
type Found<'a> = (&'a u32, &'a (Arc<str>, &'static str));

/// Lines for some of them, if there are any: what they run, in words, and whose waits those are that nobody sees.
fn lines(found: &[Found<'_>], run: impl Fn(&str, bool) -> String, waits: &str) -> Vec<String> {
    let Some((tgid, (name, _))) = found.first() else {
        return Vec::new();
    };
    let first = format!("{} {tgid}", comm(name));
    let runtimes: BTreeSet<&str> = found.iter().map(|(_, (_, runtime))| *runtime).collect();
    let runtimes = Vec::from_iter(runtimes).join(", ");
    let parts = match found.len() as u64 - 1 {
        0 => [
            format!("{first} {}", run(&runtimes, false)),
            format!("its {waits}"),
        ],
        more => [
            format!(
                "{first} and {} {}",
                units::counted(more, "others"),
                run(&runtimes, true)
            ),
            format!("their {waits}"),
        ],
    };
    sentence(&parts, "", WIDTH - "lockstat: ".len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_named_with_their_runtimes() {
        let mut runtimes = Runtimes::default();
        assert!(runtimes.describe().is_empty());
        runtimes.add(7, &"app\u{1b}".into(), "tokio");
        runtimes.add(7, &"app".into(), "smol");
        assert_eq!(
            runtimes.describe(),
            ["app\\x1b 7 runs tokio, an async runtime: its tasks' waits are not shown"]
        );
        runtimes.add(9, &"py".into(), "asyncio");
        assert_eq!(
            runtimes.describe(),
            [
                "app\\x1b 7 and 1 other run async runtimes (asyncio, tokio):",
                "  their tasks' waits are not shown"
            ]
        );
        assert_eq!(runtimes.to_json()[1]["runtime"], "asyncio");
        runtimes.add(11, &"api".into(), GO);
        assert_eq!(
            runtimes.describe()[2..],
            [
                "api 11 runs Go:",
                "  its goroutines' waits (sync.Mutex, channels) are not shown"
            ]
        );
        runtimes.add(12, &"web".into(), GO);
        assert_eq!(
            runtimes.describe()[2..],
            [
                "api 11 and 1 other run Go:",
                "  their goroutines' waits (sync.Mutex, channels) are not shown"
            ]
        );
    }
}
