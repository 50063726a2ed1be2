use super::*;
use crate::fake::{BASE, BLOCK as BLOCK_OF_THREAD, CODE, FILE, FRAME, FRAMES, Fake, NAME, STATE};

const VALUES_OF_FRAME: u64 = BASE + 0x2400;
const TABLE: u64 = BASE + 0x3100;
const TEXTS: u64 = BASE + 0x3200;
const TYPES: u64 = BASE + 0x3440;
const DEFINITIONS: u64 = BASE + 0x3600;
const OBJECTS: u64 = BASE + 0x3680;

impl Fake {
    fn text(&mut self, slot: u64, text: &str) -> u64 {
        let at = TEXTS + 0x20 * slot;
        self.put(at, text.as_bytes());
        self.put(at + text.len() as u64, &[0]);
        at
    }

    fn object(&mut self, slot: u64, of: &str) -> u64 {
        let (kind, at) = (TYPES + 0x20 * slot, OBJECTS + 0x40 * slot);
        let name = self.text(slot, of);
        self.set(kind, 24, name);
        self.set(at, 8, kind);
        at
    }

    /// A function that is bound to a lock with this semaphore.
    fn bound(&mut self, slot: u64, (name, of): (&str, &str), semaphore: u64) -> u64 {
        let lock = self.object(2 * slot + 1, of);
        self.set(lock, 16, semaphore);
        self.bound_to(slot, name, lock)
    }

    /// A condition of `threading`, without attributes.
    fn condition(&mut self, slot: u64) -> u64 {
        self.object(slot, "Condition")
    }

    /// Attributes of a condition: a thing, and what takes its lock.
    fn attributes(&mut self, object: u64, lock: u64) {
        let values = VALUES_OF_FRAME + 0x200;
        let acquire = self.bound_to(2, "acquire", lock);
        self.set(values, 0, lock);
        self.set(values, 8, acquire);
        match self.version.minor {
            ..=10 => {
                let dictionary = VALUES_OF_FRAME + 0x280;
                self.set(object, 16, dictionary);
                self.set(dictionary, 40, values);
            }
            11 => self.set(object - 32, 0, values),
            12 => self.set(object - 24, 0, values - 1),
            _ => {
                self.put(object + 16, &[2, 2, 1, 1]);
                self.set(object, 24, lock);
                self.set(object, 32, acquire);
            }
        }
    }

    /// A built-in function that is bound to an object.
    fn bound_to(&mut self, slot: u64, name: &str, object: u64) -> u64 {
        let function = self.object(2 * slot, "builtin_function_or_method");
        let definition = DEFINITIONS + 0x10 * slot;
        let name = self.text(12 + slot, name);
        self.set(definition, 0, name);
        self.set(function, 16, definition);
        self.set(function, 24, object);
        function
    }

    /// A function of a type.
    fn method(&mut self, slot: u64, name: &str) -> u64 {
        let method = self.object(2 * slot, "method_descriptor");
        let name = self.text(12 + slot, name);
        let definition = DEFINITIONS + 0x10 * slot;
        self.set(definition, 0, name);
        self.set(method, 40, definition);
        method
    }

    /// A function of Python's in a file, bound to an object where versions do that.
    fn function(&mut self, (qualified, file): (&str, &str), object: u64) -> u64 {
        let (function, code) = (self.object(9, "function"), BASE + 0x2800);
        let name = qualified.rsplit('.').next().expect("a name");
        let texts = [name, qualified, file].map(str::as_bytes);
        let [name, qualified, file] = [0, 1, 2].map(|index| {
            let text = BASE + 0x2900 + 0x80 * index as u64;
            self.put_text(text, texts[index], 1, true);
            text
        });
        let minor = self.version.minor;
        let (place, place_of_code) = if minor < 10 { (64, 16) } else { (32, 48) };
        self.set(function, place, name);
        self.set(function, place_of_code, code);
        let of_code = if minor < 11 { name } else { qualified };
        self.set(code, self.layout.name, of_code);
        self.set(code, self.layout.file, file);
        if minor >= 14 {
            return function;
        }
        let method = self.object(11, "method");
        self.set(method, 16, function);
        self.set(method, 24, object);
        method
    }

    /// The outer frame has these values, of which so many are alive.
    fn values(&mut self, values: &[u64], depth: u8) {
        let (frame, layout) = (FRAMES + FRAME, self.layout);
        let at = if layout.entries == Entries::All {
            let blocks = u64::from(layout.instruction) + 8;
            // Two blocks; the second one is the inner one.
            self.put(frame + blocks, &2_u32.to_le_bytes());
            self.put(frame + blocks + 8 + 8, &0_u32.to_le_bytes());
            self.put(frame + blocks + 8 + 12 + 8, &u32::from(depth).to_le_bytes());
            self.set(frame, 64, VALUES_OF_FRAME);
            VALUES_OF_FRAME
        } else {
            // Two entries; the frame is in the second one's second instruction: 4 bytes are 2 instructions.
            let table = [0x80, 1, 9, 0, 0x80 | 1, 2, 9, depth << 1 | 1];
            self.set(TABLE, 16, table.len() as u64);
            self.put(TABLE + 32, &table);
            self.set(CODE, 40, TABLE);
            let variables = CODE + u64::from(layout.first_line) + 4;
            self.put(variables, &3_u32.to_le_bytes());
            let head = (u64::from(layout.mark) + 1).next_multiple_of(8);
            frame + head + 3 * 8
        };
        for (index, value) in (0..).zip(values) {
            self.set(at + 8 * index, 0, *value);
        }
    }

    fn within(&self) -> Vec<u64> {
        let runtime = Runtime::find(self).expect("a good one").expect("one");
        let within = runtime.locks_within(self, STATE, |address| address != UNWANTED);
        within.iter().map(|within| within.address).collect()
    }

    /// The function of all frames.
    fn called(&mut self, name: &str, file: &str) {
        self.put_text(NAME, name.as_bytes(), 1, true);
        self.put_text(FILE, file.as_bytes(), 1, true);
    }
}

/// Address of a lock that nobody asks for.
const UNWANTED: u64 = 0x999;
const EXIT_OF_THREADING: (&str, &str) = ("Condition.__exit__", "/usr/lib/python3/threading.py");
const OF_LOCK: (&str, &str) = ("__exit__", "_thread.lock");

#[test]
fn locks_of_blocks_that_are_not_left_are_found_and_stale_ones_are_not() {
    for minor in 8..=13 {
        let mut fake = Fake::new(minor);
        let first = fake.bound(0, OF_LOCK, 0x111);
        let second = fake.bound(1, ("__exit__", "_thread.RLock"), 0x222);
        let of_second = fake.object(3, "_thread.RLock");
        fake.set(of_second, 24, BLOCK_OF_THREAD);
        let stale = fake.bound(2, OF_LOCK, 0x333);
        for (depth, expected) in [
            (0, &[][..]),
            (1, &[0x111][..]),
            (2, &[0x111][..]),
            (3, &[0x111, 0x222][..]),
        ] {
            fake.values(&[first, 7, second, stale], depth);
            assert_eq!(fake.within(), expected, "3.{minor}, {depth} values");
        }
    }
}

#[test]
fn other_values_are_no_locks() {
    for (name, of) in [
        ("__enter__", "_thread.lock"),
        ("__exit__", "io.Text"),
        ("", ""),
    ] {
        let mut fake = Fake::new(12);
        let value = fake.bound(0, (name, of), 0x111);
        let lock = fake.object(3, "_thread.lock");
        fake.values(&[value, lock, 0, u64::MAX], 4);
        assert_eq!(fake.within(), [], "{name} of {of}");
    }
}

/// From 3.14 on a function of the type lies before the lock, and values say in two bits how they are counted.
#[test]
fn a_lock_with_a_byte_lies_behind_its_function() {
    let mut fake = Fake::new(14);
    let exit = fake.method(0, EXIT);
    let (lock, other) = (
        fake.object(3, "_thread.lock"),
        fake.object(5, "_io.TextIOWrapper"),
    );
    let stale = fake.object(7, "_thread.RLock");
    fake.set(stale, 24, BLOCK_OF_THREAD);
    let values = [exit | 1, lock | 1, 7, exit, other, exit | 1, stale];
    for (depth, expected) in [
        (0, &[][..]),
        (2, &[lock + 16][..]),
        (6, &[lock + 16][..]),
        (7, &[lock + 16, stale + 16][..]),
    ] {
        fake.values(&values, depth);
        assert_eq!(fake.within(), expected, "{depth} values");
    }
}

#[test]
fn the_lock_that_is_waited_for_is_an_argument() {
    for name in ["__enter__", "acquire", "release"] {
        let mut fake = Fake::new(14);
        let (function, lock) = (fake.method(0, name), fake.object(3, "_thread.lock"));
        fake.values(&[], 0);
        // `lock.acquire(True)`: the end is behind the argument.
        for (value, at) in [(function | 1, 0), (lock, 8), (7, 16)] {
            fake.set(VALUES_OF_FRAME + 0x100, at, value);
        }
        fake.set(FRAMES, END, VALUES_OF_FRAME + 0x118);
        let runtime = Runtime::find(&fake).expect("a good one").expect("one");
        let expected = (name != "release").then_some(lock + 16);
        assert_eq!(runtime.lock_waited_for(&fake, STATE), expected, "{name}");
    }
}

/// Versions keep an object's attributes in different places; a thread that waits for a condition has given its lock away, and no other.
#[test]
fn a_condition_has_its_lock_until_it_is_waited_for() {
    for minor in 8..=14 {
        let mut fake = Fake::new(minor);
        let (lock, condition) = (fake.object(5, "_thread.lock"), fake.condition(7));
        fake.set(lock, 16, 0x444);
        let of_condition = if minor < 14 { 0x444 } else { lock + 16 };
        let exit = fake.function(EXIT_OF_THREADING, condition);
        fake.attributes(condition, lock);
        fake.values(&[exit, condition | 1], 2);
        assert_eq!(fake.within(), [of_condition], "3.{minor}");

        let wait = if minor < 11 { "wait" } else { "Condition.wait" };
        let variables = variables_at(&fake.layout);
        fake.set(FRAMES + variables, 0, condition);
        fake.called(wait, "/usr/lib/python3/threading.py");
        assert_eq!(fake.within(), [], "3.{minor} waits");
        fake.called(wait, "/srv/wait.py");
        assert_eq!(fake.within(), [of_condition], "3.{minor} does something");
        // It may have given away anything, whatever it is.
        fake.called(wait, "threading.py");
        fake.set(FRAMES + variables, 0, lock + 8);
        assert_eq!(fake.within(), [], "3.{minor} waits for something");

        fake.called("name", "file.py");
        for other in [
            ("Condition.notify", "/usr/lib/python3/threading.py"),
            ("Connection.__exit__", "/srv/threads.py"),
        ] {
            let other = fake.function(other, condition);
            fake.values(&[other, condition], 2);
            assert_eq!(fake.within(), [], "3.{minor}");
        }
    }
}

#[test]
fn a_lock_that_names_another_owner_is_not_had() {
    for minor in 8..=13 {
        let mut fake = Fake::new(minor);
        let value = fake.bound(0, ("__exit__", "_thread.RLock"), 0x111);
        let lock = fake.object(1, "_thread.RLock");
        fake.set(lock, 16, 0x111);
        fake.values(&[value], 1);
        assert_eq!(fake.within(), [], "3.{minor}");
        fake.set(lock, 24, BLOCK_OF_THREAD);
        assert_eq!(fake.within(), [0x111], "3.{minor}");
        fake.set(lock, 16, UNWANTED);
        assert_eq!(fake.within(), [], "3.{minor}");
    }
}

/// Frames that lead to themselves, and more values than any function has.
#[test]
fn a_hostile_stack_ends() {
    for minor in [8, 12] {
        let mut fake = Fake::new(minor);
        let value = fake.bound(0, OF_LOCK, 0x111);
        fake.values(&[value; 31], 31);
        fake.set(FRAMES + FRAME, fake.layout.previous, FRAMES + FRAME);
        let runtime = Runtime::find(&fake).expect("a good one").expect("one");
        let within = runtime.locks_within(&fake, STATE, |_| true);
        assert_eq!(within.len(), MAX_ALL_VALUES, "3.{minor}");
    }
}

#[test]
fn depths_are_those_of_cpythons_table() {
    // `with a: with b: pass` of 3.12: 6 to 10 [1], 12 to 12 [2], 16 to 30 [1], 50 to 58 [4], in bytes.
    let entry = |start: u8, size: u8, depth: u8| [0x80 | start, size, 20, depth << 1 | 1];
    let table = [
        entry(3, 3, 1),
        entry(6, 1, 2),
        entry(8, 8, 1),
        entry(25, 5, 4),
    ]
    .concat();
    for (instruction, depth) in [
        (2, None),
        (3, Some(1)),
        (5, Some(1)),
        (6, Some(2)),
        (7, None),
        (15, Some(1)),
        (24, None),
        (29, Some(4)),
        (30, None),
    ] {
        assert_eq!(depth_at(&table, instruction), depth, "{instruction}");
    }
    // Numbers of two bytes: 64 + 1, and 2 << 6.
    let long = [0x80 | MORE | 1, 1, MORE | 2, 0, 20, 1 << 1];
    assert_eq!(depth_at(&long, 65), Some(1));
    assert_eq!(depth_at(&long, 65 + 127), Some(1));
    assert_eq!(depth_at(&long, 65 + 128), None);
    assert_eq!(depth_at(&long[..5], 65), None, "it is cut");
}
