//! Threads and monitors of a running Java virtual machine (HotSpot), read out of its memory without its help.
//!
//! A thread that waits for a monitor sleeps on a word of its own: which monitor that is, and whose, the machine knows alone.

mod fields;
mod layout;
mod loaded;
mod parked;
mod structs;

use std::ops::Range;

use symbols::memory;

pub(crate) use layout::CLASS_UNKNOWN;
pub(crate) use parked::Awaited;
pub(crate) use structs::Pages;
use structs::{Fields, Read, word_of};

/// The variable that has the address of the machine's description of itself, and the file that has the variable.
pub(crate) const DESCRIPTION: (&str, &str) = ("libjvm.so", "gHotSpotVMStructs");

/// Threads that are looked at: more than the BPF side has room for, so that the number of those that it has none for is known.
const MOST_THREADS: usize = 1 << 15;
/// Monitors that a thread has without their knowing whose they are.
const MOST_KEPT: u64 = 8;
/// The owner of a monitor that was taken without its help: the thread that has it knows.
const ANONYMOUS: u64 = 1;
/// Bits of an object's header below its class, if that is there.
const CLASS_SHIFT: u32 = 42;
/// Bytes of a class's name.
const LONGEST_CLASS: usize = 512;

const THREADS: &[&str] = &["JavaThread", "Thread"];
const WANTED: [(&str, &str); 46] = [
    ("ThreadsSMRSupport", "_java_thread_list"),
    ("ThreadsList", "_length"),
    ("ThreadsList", "_threads"),
    ("JavaThread", "_osthread"),
    ("Thread", "_osthread"),
    ("OSThread", "_thread_id"),
    ("JavaThread", "_current_pending_monitor"),
    ("Thread", "_current_pending_monitor"),
    ("JavaThread", "_current_waiting_monitor"),
    ("Thread", "_current_waiting_monitor"),
    ("JavaThread", "_monitor_owner_id"),
    ("JavaThread", "_threadObj"),
    ("JavaThread", "_lock_stack"),
    ("LockStack", "_top"),
    ("LockStack", "_base[0]"),
    ("JavaThread", "_stack_base"),
    ("Thread", "_stack_base"),
    ("JavaThread", "_stack_size"),
    ("Thread", "_stack_size"),
    ("ObjectMonitor", "_owner"),
    ("ObjectMonitor", "_object"),
    ("oopDesc", "_metadata._compressed_klass"),
    ("oopDesc", "_metadata._klass"),
    ("CompressedKlassPointers", "_base"),
    ("CompressedKlassPointers", "_narrow_klass._base"),
    ("CompressedKlassPointers", "_shift"),
    ("CompressedKlassPointers", "_narrow_klass._shift"),
    ("CompressedOops", "_base"),
    ("CompressedOops", "_narrow_oop._base"),
    ("Universe", "_narrow_oop._base"),
    ("CompressedOops", "_shift"),
    ("CompressedOops", "_narrow_oop._shift"),
    ("Universe", "_narrow_oop._shift"),
    ("Klass", "_primary_supers[0]"),
    ("ClassLoaderData", "_klasses"),
    ("Klass", "_next_link"),
    ("Klass", "_super"),
    ("Klass", "_name"),
    ("InstanceKlass", "_constants"),
    ("InstanceKlass", "_fields"),
    ("InstanceKlass", "_fieldinfo_stream"),
    ("ConstantPool", "_length"),
    ("Array<u1>", "_data"),
    ("Array<u2>", "_data"),
    ("Symbol", "_length"),
    ("Symbol", "_body"),
];

/// Places of all fields in the structures of a process's machine, which stay where they are.
pub(crate) struct Description(Fields);

impl Description {
    /// `at`: the address of the variable of this name; `None`: it describes nothing that is known.
    pub(crate) fn read(at: u64, read: Read<'_>) -> Option<Self> {
        let fields = Fields::read(word(read, at)?, &WANTED, read);
        let needed = [
            (&["ThreadsSMRSupport"][..], "_java_thread_list"),
            (THREADS, "_current_pending_monitor"),
            (&["ObjectMonitor"], "_owner"),
        ];
        let has = |(types, name): (&[&'static str], _)| fields.of(types, name).is_some();
        needed.into_iter().all(has).then_some(Self(fields))
    }
}

/// The machine of a process.
pub(crate) struct Machine<'a> {
    fields: &'a Fields,
    read: Read<'a>,
}

/// One thread of the machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JavaThread {
    /// Its ID, as the process itself knows it.
    pub(crate) tid: u32,
    /// The monitor that it waits to have.
    pub(crate) awaited: Option<u64>,
    /// Its JavaThread's.
    pub(crate) address: u64,
    /// Its number in monitors.
    pub(crate) owner_id: Option<u64>,
    stack: Range<u64>,
}

impl<'a> Machine<'a> {
    pub(crate) fn of(description: &'a Description, read: Read<'a>) -> Self {
        let fields = &description.0;
        Self { fields, read }
    }

    /// All threads that there are; `None`: they cannot be read.
    pub(crate) fn threads(&self) -> Option<Vec<JavaThread>> {
        let listed = self.listed(self.list()?)?;
        Some(listed.filter_map(|one| self.thread(one)).collect())
    }

    /// The one at an address, if it is there.
    pub(crate) fn thread(&self, address: u64) -> Option<JavaThread> {
        let of_thread = |name| self.word(self.field(address, THREADS, name)?);
        let base = of_thread("_stack_base")?;
        Some(JavaThread {
            tid: self.tid(address)?,
            awaited: of_thread("_current_pending_monitor").filter(|monitor| *monitor != 0),
            address,
            owner_id: of_thread("_monitor_owner_id"),
            stack: base.saturating_sub(of_thread("_stack_size")?)..base,
        })
    }

    /// Address of the list of all threads, which is another one whenever a thread has begun or ended.
    pub(crate) fn list(&self) -> Option<u64> {
        self.word(self.field(0, &["ThreadsSMRSupport"], "_java_thread_list")?)
    }

    /// Addresses of the list's threads.
    pub(crate) fn listed(&self, list: u64) -> Option<impl Iterator<Item = u64>> {
        let count = self.half(self.field(list, &["ThreadsList"], "_length")?)? as usize;
        let array = self.word(self.field(list, &["ThreadsList"], "_threads")?)?;
        let address = move |at: u64| self.word(array.wrapping_add(8 * at));
        Some((0..count.min(MOST_THREADS) as u64).filter_map(address))
    }

    /// The ID of a thread, as its process knows it.
    pub(crate) fn tid(&self, thread: u64) -> Option<u32> {
        let of_system = self.word(self.field(thread, THREADS, "_osthread")?)?;
        self.half(self.field(of_system, &["OSThread"], "_thread_id")?)
    }

    /// The name of a class, by its address: `java.lang.Object`.
    pub(crate) fn name(&self, class: u64) -> Option<String> {
        self.symbol(self.word(self.field(class, &["Klass"], "_name")?)?)
    }

    /// The one of these that has a monitor; `None`: nobody, or it is not known.
    pub(crate) fn owner<'b>(
        &self,
        monitor: u64,
        threads: &'b [JavaThread],
    ) -> Option<&'b JavaThread> {
        let field = self.fields.of(&["ObjectMonitor"], "_owner")?;
        let owner = self.word(monitor.wrapping_add(field.place))?;
        let is_it = |thread: &&JavaThread| match owner {
            0 => false,
            ANONYMOUS => self.has_kept(thread, monitor),
            // Since JDK 24 by a number; before, by its address, or by where the lock is on its stack.
            id if field.is_number => thread.owner_id == Some(id),
            at => thread.address == at || thread.stack.contains(&at),
        };
        threads.iter().find(is_it)
    }

    /// Looks for a monitor's object among those that a thread has taken without a monitor.
    fn has_kept(&self, thread: &JavaThread, monitor: u64) -> bool {
        let among = || {
            let objects = self.objects(monitor)?;
            let stack = self.field(thread.address, &["JavaThread"], "_lock_stack")?;
            let first = self.field(stack, &["LockStack"], "_base[0]")?;
            // Its end counts from the thread's beginning.
            let end = u64::from(self.half(self.field(stack, &["LockStack"], "_top")?)?);
            let bytes = thread.address.wrapping_add(end).saturating_sub(first);
            let places = (0..MOST_KEPT).map(|at| 8 * at).filter(|at| *at < bytes);
            let mut kept = places.filter_map(|at| self.word(first.wrapping_add(at)));
            Some(kept.any(|object| objects.contains(&object)))
        };
        among().unwrap_or(false)
    }

    /// Address of the object whose monitor it is, by a handle of the machine's: what this has, or where the collector is ZGC a part of it,
    /// of which it does not say how large it is.
    fn objects(&self, monitor: u64) -> Option<[u64; 5]> {
        let handle = self.word(self.field(monitor, &["ObjectMonitor"], "_object")?)?;
        let object = self.word(handle)?;
        Some([0, 13, 14, 15, 16].map(|colours| object >> colours))
    }

    /// The class of the object whose monitor it is: `java.lang.Object`.
    pub(crate) fn class(&self, monitor: u64) -> Option<String> {
        let name = |class| self.name(class);
        let classes = |object| self.classes(object).into_iter().flatten();
        self.objects(monitor)?
            .into_iter()
            .flat_map(classes)
            .find_map(name)
    }

    /// Places where an object's class may be: the machine does not say whether a number of its own stands for it, or a part of the header.
    fn classes(&self, object: u64) -> [Option<u64>; 3] {
        let number =
            || self.half(self.field(object, &["oopDesc"], "_metadata._compressed_klass")?);
        let plain = || self.word(self.field(object, &["oopDesc"], "_metadata._klass")?);
        [
            number().and_then(|number| self.numbered_class(number.into())),
            self.word(object)
                .and_then(|header| self.numbered_class(header >> CLASS_SHIFT)),
            plain(),
        ]
    }

    fn numbered_class(&self, number: u64) -> Option<u64> {
        let of_all = |names: [&'static str; 2]| {
            let place = |name| self.field(0, &["CompressedKlassPointers"], name);
            names.into_iter().find_map(place)
        };
        let base = self.word(of_all(["_base", "_narrow_klass._base"])?)?;
        let shift = self.half(of_all(["_shift", "_narrow_klass._shift"])?)?;
        base.checked_add(number.checked_shl(shift)?)
    }

    fn symbol(&self, symbol: u64) -> Option<String> {
        let length = self.half(self.field(symbol, &["Symbol"], "_length")?)? & 0xffff;
        let mut name = vec![0; (length as usize).min(LONGEST_CLASS)];
        let is_there = (self.read)(self.field(symbol, &["Symbol"], "_body")?, &mut name);
        let name = String::from_utf8(name).ok().filter(|_| is_there)?;
        let is_of_names = |c: char| c.is_alphanumeric() || "/$_-+.[;".contains(c);
        let is_name = !name.is_empty() && name.chars().all(is_of_names);
        is_name.then(|| name.replace('/', "."))
    }

    /// Address of a field of the structure at `base`, which is of one of these types.
    fn field(&self, base: u64, types: &[&'static str], name: &'static str) -> Option<u64> {
        let field = self.fields.of(types, name)?;
        Some(base.wrapping_add(field.place))
    }

    fn word(&self, address: u64) -> Option<u64> {
        word(self.read, address)
    }

    /// A number of four bytes.
    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        (self.read)(address, &mut bytes).then_some(u32::from_le_bytes(bytes))
    }
}

/// Reads a process's memory: all of the buffer, or it says that it cannot.
pub(crate) fn memory_of(tgid: u32) -> impl Fn(u64, &mut [u8]) -> bool {
    move |address, buffer| memory::read(tgid, address, buffer).ok() == Some(buffer.len())
}

fn word(read: Read<'_>, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(address, &mut bytes).then(|| word_of(&bytes))
}

#[cfg(test)]
pub(crate) mod tests;
