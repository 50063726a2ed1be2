//! The layout of a machine, by which the BPF side reads what a thread waits for as it goes to sleep.

use bpf::lockstat::types::java_machine;

use super::structs::Field;
use super::{Machine, THREADS};

/// `enum java_class_place` of the BPF side.
const CLASS_WORD: u8 = 0;
pub(super) const CLASS_NUMBER: u8 = 1;
pub(super) const CLASS_IN_HEADER: u8 = 2;
pub(crate) const CLASS_UNKNOWN: u8 = 3;

/// The ancestor of all that has an owner, and what it is an ancestor of at the least: Object comes first.
const OWNABLE: &str = "java.util.concurrent.locks.AbstractOwnableSynchronizer";
const DEPTH: u16 = 1;
/// Classes that the machine knows by itself.
const KNOWN_CLASSES: u64 = 160;

/// Variables of the machine that its description leaves out, by their names in its symbol table: releases had several.
const PARK_BLOCKER: [&str; 1] = ["_ZN16java_lang_Thread20_park_blocker_offsetE"];
const NATIVE_THREAD: [&str; 1] = ["_ZN16java_lang_Thread13_eetop_offsetE"];
const OWNER: [&str; 2] = [
    "_ZN54java_util_concurrent_locks_AbstractOwnableSynchronizer13_owner_offsetE",
    "_ZN54java_util_concurrent_locks_AbstractOwnableSynchronizer12owner_offsetE",
];
const CLASSES: [&str; 2] = [
    "_ZN9vmClasses8_klassesE",
    "_ZN16SystemDictionary19_well_known_klassesE",
];
const SHORT_REFERENCES: [&str; 1] = ["UseCompressedOops"];
const NUMBERED_CLASSES: [&str; 1] = ["UseCompressedClassPointers"];
const CLASSES_IN_HEADERS: [&str; 1] = ["UseCompactObjectHeaders"];
/// A collector, and its way since JDK 21, the only one since 24: references are more than addresses.
const ZGC: [&str; 1] = ["UseZGC"];
const GENERATIONAL: [&str; 1] = ["ZGenerational"];
/// The lowest of the bits by which the older way tells its views of one object apart.
const VIEWS: u64 = 1 << 42;

/// Finds a variable of the machine's file by its name.
pub(crate) type Variables<'a> = &'a mut dyn FnMut(&str) -> Option<u64>;

/// Places in objects, and not in the machine's own structures.
#[derive(Default)]
struct Objects {
    address_bits: u64,
    object_base: u64,
    ownable: u64,
    park_blocker: u16,
    native_thread: u16,
    owner: u16,
    has_short_references: bool,
    has_colours: bool,
    class_place: u8,
}

impl Machine<'_> {
    /// `None`: the machine is not ready yet, or one that is not known. `space`: see [`host::procs::stack_start`].
    pub(crate) fn layout(&self, space: u64, variables: Variables<'_>) -> Option<java_machine> {
        self.list().filter(|list| *list != 0)?;
        let threads_object = self.fields.of(&["JavaThread"], "_threadObj")?;
        let owner = self.fields.of(&["ObjectMonitor"], "_owner")?;
        let objects = self.of_objects(owner, variables)?;
        let place = |types: &[&'static str], name| self.place(types, name);
        let is_numbered = objects.class_place != CLASS_WORD;
        let class_base = self.first_word(&CLASS_BASE).filter(|_| is_numbered);
        Some(java_machine {
            space,
            object_base: objects.object_base,
            class_base: class_base.unwrap_or(0),
            ownable: objects.ownable,
            address_bits: objects.address_bits,
            os_thread: place(THREADS, "_osthread")?,
            thread_object: u16::try_from(threads_object.place).ok()?,
            pending_monitor: place(THREADS, "_current_pending_monitor")?,
            waiting_monitor: place(THREADS, "_current_waiting_monitor")?,
            thread_id: place(&["OSThread"], "_thread_id")?,
            park_blocker: objects.park_blocker,
            native_thread: objects.native_thread,
            owner: objects.owner,
            class_at: place(&["oopDesc"], "_metadata._klass")?,
            ancestor: place(&["Klass"], "_primary_supers[0]")?.checked_add(8 * DEPTH)?,
            monitor_object: place(&["ObjectMonitor"], "_object")?,
            monitor_owner: u16::try_from(owner.place).ok()?,
            object_shift: self.first_shift(&OBJECT_SHIFT),
            class_shift: self.first_shift(&CLASS_SHIFT),
            has_short_references: objects.has_short_references.into(),
            class_place: objects.class_place,
            has_handles: threads_object.is_handle.into(),
            has_numbers: owner.is_number.into(),
            has_colours: objects.has_colours.into(),
            ..java_machine::default()
        })
    }

    /// `None`: the machine is not ready yet.
    fn of_objects(&self, owner: &Field, variables: Variables<'_>) -> Option<Objects> {
        let mut at = |names: &[&str]| names.iter().find_map(|name| variables(name));
        let flag = |at: Option<u64>| at.and_then(|at| self.byte(at)).map(|byte| byte != 0);
        // Numbers of owners came with JDK 24.
        let is_generational = flag(at(&GENERATIONAL)).unwrap_or(owner.is_number);
        let uses_zgc = flag(at(&ZGC)) == Some(true);
        let has_colours = is_generational && uses_zgc;
        let places = [&PARK_BLOCKER[..], &NATIVE_THREAD, &OWNER].map(&mut at);
        let ([Some(blocker), Some(native), Some(owner)], Some(is_short), Some(classes)) =
            (places, flag(at(&SHORT_REFERENCES)), at(&CLASSES))
        else {
            return Some(Objects {
                class_place: CLASS_UNKNOWN,
                has_colours,
                address_bits: u64::MAX,
                ..Objects::default()
            });
        };
        let is_numbered = flag(at(&NUMBERED_CLASSES)).unwrap_or(true);
        let in_headers = flag(at(&CLASSES_IN_HEADERS)) == Some(true);
        // Before the machine is ready they are 0.
        let offset = |at| u16::try_from(self.half(at)?).ok().filter(|at| *at != 0);
        let object_base = self.first_word(&OBJECT_BASE).filter(|_| is_short);
        Some(Objects {
            object_base: object_base.unwrap_or(0),
            address_bits: match uses_zgc && !has_colours {
                true => VIEWS - 1,
                false => u64::MAX,
            },
            ownable: self.known_class(classes, OWNABLE)?,
            park_blocker: offset(blocker)?,
            native_thread: offset(native)?,
            owner: offset(owner)?,
            has_short_references: is_short,
            has_colours,
            class_place: match (is_numbered, in_headers) {
                (_, true) => CLASS_IN_HEADER,
                (true, _) => CLASS_NUMBER,
                (false, _) => CLASS_WORD,
            },
        })
    }

    /// Bytes from the beginning of the structure to a field.
    fn place(&self, types: &[&'static str], name: &'static str) -> Option<u16> {
        u16::try_from(self.fields.of(types, name)?.place).ok()
    }

    /// Address of one of the machine's own classes.
    fn known_class(&self, classes: u64, name: &str) -> Option<u64> {
        let class = |at: u64| {
            self.word(classes.wrapping_add(8 * at))
                .filter(|at| *at != 0)
        };
        let mut known = (0..KNOWN_CLASSES).filter_map(class);
        known.find(|class| self.name(*class).as_deref() == Some(name))
    }

    fn first_word(&self, names: &[(&'static str, &'static str)]) -> Option<u64> {
        let place = |(kind, name): &(&'static str, &'static str)| self.field(0, &[*kind], name);
        self.word(names.iter().find_map(place)?)
    }

    fn first_shift(&self, names: &[(&'static str, &'static str)]) -> u8 {
        // Only the first byte of a small number is looked at.
        self.first_word(names).map_or(0, |shift| shift as u8)
    }

    fn byte(&self, address: u64) -> Option<u8> {
        let mut byte = [0];
        (self.read)(address, &mut byte).then_some(byte[0])
    }
}

const OBJECT_BASE: [(&str, &str); 3] = [
    ("CompressedOops", "_base"),
    ("CompressedOops", "_narrow_oop._base"),
    ("Universe", "_narrow_oop._base"),
];
const OBJECT_SHIFT: [(&str, &str); 3] = [
    ("CompressedOops", "_shift"),
    ("CompressedOops", "_narrow_oop._shift"),
    ("Universe", "_narrow_oop._shift"),
];
const CLASS_BASE: [(&str, &str); 2] = [
    ("CompressedKlassPointers", "_base"),
    ("CompressedKlassPointers", "_narrow_klass._base"),
];
const CLASS_SHIFT: [(&str, &str); 2] = [
    ("CompressedKlassPointers", "_shift"),
    ("CompressedKlassPointers", "_narrow_klass._shift"),
];

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
