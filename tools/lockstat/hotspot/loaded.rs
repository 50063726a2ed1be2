//! Classes that a machine has loaded by itself, and not by a loader of the program's: the library's.

use super::Machine;
use super::layout::Variables;

/// The machine's own loader, by the variable that has it.
const LOADER: &str = "_ZN15ClassLoaderData27_the_null_class_loader_dataE";
/// Classes that are looked at: the library has about 7000, a program loads a part of them.
const MOST: usize = 1 << 14;

impl Machine<'_> {
    /// Addresses and names of those whose names begin in one of these ways.
    pub(crate) fn loaded(
        &self,
        variables: Variables<'_>,
        beginnings: &[&str],
    ) -> Vec<(u64, String)> {
        let mut first = || {
            let loader = self.word(variables(LOADER)?)?;
            self.word(self.field(loader, &["ClassLoaderData"], "_klasses")?)
        };
        let is_there = |class: &u64| *class != 0;
        let next = |class: &u64| {
            let next = self.word(self.field(*class, &["Klass"], "_next_link")?)?;
            Some(next).filter(is_there)
        };
        let classes = std::iter::successors(first().filter(is_there), next).take(MOST);
        let named = classes.filter_map(|class| Some((class, self.name(class)?)));
        let begins = |name: &str| beginnings.iter().any(|one| name.starts_with(one));
        named.filter(|(_, name)| begins(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Description;
    use super::super::tests::{DESCRIBED_AT, machine};
    use super::*;

    const LOADER_AT: u64 = 0x50_000;
    const CLASSES: [u64; 3] = [0x51_000, 0x52_000, 0x53_000];
    const NAMES: [&str; 3] = ["shop/Till", "java/util/Lock$Fair", "java/lang/Object"];

    #[test]
    fn classes_of_the_library_are_found_by_their_names() {
        let memory = machine();
        memory.describe(&[
            ("ThreadsSMRSupport", "_java_thread_list", true, 0x30_000),
            ("JavaThread", "_current_pending_monitor", false, 8),
            ("ObjectMonitor", "_owner", false, 8),
            ("ClassLoaderData", "_klasses", false, 8),
            ("Klass", "_next_link", false, 8),
            ("Klass", "_name", false, 16),
            ("Symbol", "_length", false, 0),
            ("Symbol", "_body", false, 2),
        ]);
        memory.put_word(LOADER_AT, LOADER_AT + 8);
        memory.put_word(LOADER_AT + 16, CLASSES[0]);
        for (at, (class, name)) in CLASSES.iter().zip(NAMES).enumerate() {
            memory.put_word(class + 8, CLASSES.get(at + 1).copied().unwrap_or(0));
            memory.put_word(class + 16, class + 32);
            memory.put(class + 32, &[name.len() as u8, 0]);
            memory.put(class + 34, name.as_bytes());
        }
        memory.put_word(0x60_000, 0);
        let read = |address: u64, buffer: &mut [u8]| memory.read(address, buffer);
        let description = Description::read(DESCRIBED_AT, &read).expect("all that is needed");
        let machine = Machine::of(&description, &read);
        let variables = &mut |name: &str| (name == LOADER).then_some(LOADER_AT);
        let found = machine.loaded(variables, &["java.util.Lock$"]);
        assert_eq!(found, [(CLASSES[1], "java.util.Lock$Fair".to_owned())]);
        assert!(machine.loaded(&mut |_: &str| None, &["java"]).is_empty());
        // A list without an end.
        memory.put_word(CLASSES[2] + 8, CLASSES[0]);
        let all = machine.loaded(&mut |_: &str| Some(LOADER_AT), &["shop."]);
        assert!(all.len() <= MOST && !all.is_empty());
    }
}
