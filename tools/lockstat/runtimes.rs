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
        let files = stacks.code_files(tgid);
        let files = files.iter().map(|file| ("", Some(&**file)));
        if let Some((runtime, name)) = rules.runtime_of(files).zip(comm_of(tgid)) {
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
        let Some((tgid, (name, _))) = self.0.first_key_value() else {
            return Vec::new();
        };
        let first = format!("{} {tgid}", comm(name));
        let runtimes: BTreeSet<&str> = self.0.values().map(|(_, runtime)| *runtime).collect();
        let runtimes = Vec::from_iter(runtimes).join(", ");
        let parts = match self.0.len() - 1 {
            0 => [
                format!("{first} runs {runtimes}, an async runtime:"),
                "its tasks' waits are not shown".to_owned(),
            ],
            more => [
                format!(
                    "{first} and {} run async runtimes ({runtimes}):",
                    units::counted(more as u64, "others")
                ),
                "their tasks' waits are not shown".to_owned(),
            ],
        };
        sentence(&parts, "", WIDTH - "lockstat: ".len())
    }

    /// `[{"comm", "pid", "runtime"}, …]`
    pub(crate) fn to_json(&self) -> Value {
        let of_process = |(tgid, (name, runtime)): (&u32, &(Arc<str>, &'static str))| json!({"comm": **name, "pid": tgid, "runtime": runtime});
        self.0.iter().map(of_process).collect()
    }
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
    }
}
