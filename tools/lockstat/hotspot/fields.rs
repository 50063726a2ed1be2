//! Fields of Java's classes: where objects have them.
//!
//! Until JDK 20 a class has an array of six numbers for each (`fieldInfo.hpp`), since JDK 21 a stream of numbers in UNSIGNED5
//! (`fieldInfo.hpp`, `unsigned5.hpp`).

use super::Machine;

/// Ancestors that are looked at, and fields of a class.
const MOST_ANCESTORS: usize = 16;
const MOST_FIELDS: u32 = 1 << 10;
/// Numbers for a field in the array: the name's is the second, the offset the last two, with two bits of its own below.
const NUMBERS: u64 = 6;
const NAME: u64 = 1;
const OFFSET: u64 = 4;
const TAG_BITS: u32 = 2;
/// Flags of a field in the stream that more numbers follow for.
const INITIALIZED: u32 = 1;
const GENERIC: u32 = 1 << 2;
const CONTENDED: u32 = 1 << 4;
/// Bytes of a stream that are read.
const LONGEST_STREAM: usize = 4096;

impl Machine<'_> {
    /// Bytes from the beginning of an object of the class to a field, of the class or its nearest ancestor that has one of this name.
    pub(crate) fn offset(&self, class: u64, name: &str) -> Option<u64> {
        let parent = |class: &u64| {
            let parent = self.word(self.field(*class, &["Klass"], "_super")?)?;
            Some(parent).filter(|parent| *parent != 0)
        };
        let line = std::iter::successors(Some(class), parent);
        line.take(MOST_ANCESTORS)
            .find_map(|class| self.own_offset(class, name))
    }

    fn own_offset(&self, class: u64, name: &str) -> Option<u64> {
        let constants = self.word(self.field(class, &["InstanceKlass"], "_constants")?)?;
        let first = constants.wrapping_add(self.pool_bytes()?);
        let is_it = |index: u32| {
            let symbol = self.word(first.wrapping_add(8 * u64::from(index)));
            symbol.and_then(|symbol| self.symbol(symbol)).as_deref() == Some(name)
        };
        match self.field(class, &["InstanceKlass"], "_fieldinfo_stream") {
            Some(stream) => self.in_stream(self.word(stream)?, is_it),
            None => self.in_array(class, is_it),
        }
    }

    /// Bytes of a pool of constants before the first one, behind its length and another number.
    fn pool_bytes(&self) -> Option<u64> {
        let length = self.fields.of(&["ConstantPool"], "_length")?.place;
        length.checked_add(8)?.checked_next_multiple_of(8)
    }

    fn in_array(&self, class: u64, is_it: impl Fn(u32) -> bool) -> Option<u64> {
        let array = self.word(self.field(class, &["InstanceKlass"], "_fields")?)?;
        let length = self.half(array)?;
        let data = self.field(array, &["Array<u2>"], "_data")?;
        let number =
            |field: u64, at: u64| self.quarter(data.wrapping_add(2 * (NUMBERS * field + at)));
        let fields = u64::from((length / NUMBERS as u32).min(MOST_FIELDS));
        let field = (0..fields)
            .find(|field| number(*field, NAME).is_some_and(|name| is_it(name.into())))?;
        let packed =
            u32::from(number(field, OFFSET + 1)?) << 16 | u32::from(number(field, OFFSET)?);
        Some((packed >> TAG_BITS).into())
    }

    fn in_stream(&self, array: u64, is_it: impl Fn(u32) -> bool) -> Option<u64> {
        let length = self.half(array)? as usize;
        let mut bytes = vec![0; length.min(LONGEST_STREAM)];
        let data = self.field(array, &["Array<u1>"], "_data")?;
        (self.read)(data, &mut bytes).then_some(())?;
        let mut numbers = Numbers(&bytes);
        let (fields, _injected) = (numbers.next()?, numbers.next()?);
        for _ in 0..fields.min(MOST_FIELDS) {
            let (name, _signature, offset) = (numbers.next()?, numbers.next()?, numbers.next()?);
            let (_access, flags) = (numbers.next()?, numbers.next()?);
            if is_it(name) {
                return Some(offset.into());
            }
            for more in [INITIALIZED, GENERIC, CONTENDED] {
                if flags & more != 0 {
                    numbers.next()?;
                }
            }
        }
        None
    }

    fn quarter(&self, address: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        (self.read)(address, &mut bytes).then_some(u16::from_le_bytes(bytes))
    }
}

/// Numbers in UNSIGNED5: the last byte of one is among the lower 191 of those that are not 0.
struct Numbers<'a>(&'a [u8]);

/// Bits that a byte adds, lower bytes, and bytes of a number at most.
const SHIFT: u32 = 6;
const LOWER: u32 = 191;
const LONGEST: u32 = 5;

impl Iterator for Numbers<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let mut sum = 0_u32;
        for at in 0..LONGEST {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            let digit = u32::from(*first).checked_sub(1)?;
            sum = sum.wrapping_add(digit << (SHIFT * at));
            if digit < LOWER {
                break;
            }
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Description;
    use super::super::tests::{DESCRIBED_AT, Memory, machine};
    use super::*;

    const CLASS: u64 = 0x50_000;
    const PARENT: u64 = 0x51_000;
    const CONSTANTS: u64 = 0x52_000;
    const ARRAY: u64 = 0x53_000;
    const NAME: u64 = 0x54_000;
    const COMMON: [(&str, &str, bool, u64); 6] = [
        ("Klass", "_super", false, 8),
        ("InstanceKlass", "_constants", false, 16),
        ("ConstantPool", "_length", false, 4),
        ("Symbol", "_length", false, 0),
        ("Symbol", "_body", false, 2),
        ("ObjectMonitor", "_owner", false, 8),
    ];

    /// A class without fields, whose parent has one that the third constant names. `more`: how its fields are listed.
    fn classes(more: &[(&'static str, &'static str, bool, u64)], array: &[u8]) -> Memory {
        let memory = machine();
        let needed = [
            ("ThreadsSMRSupport", "_java_thread_list", true, 0x30_000),
            ("JavaThread", "_current_pending_monitor", false, 8),
        ];
        memory.describe(&[&COMMON[..], &needed, more].concat());
        memory.put_word(CLASS + 8, PARENT);
        memory.put_word(CLASS + 16, CONSTANTS);
        memory.put_word(PARENT + 8, 0);
        memory.put_word(PARENT + 16, CONSTANTS);
        memory.put_word(PARENT + 24, ARRAY);
        memory.put_word(CONSTANTS + 16 + 8 * 3, NAME);
        memory.put(NAME, &[4, 0]);
        memory.put(NAME + 2, b"task");
        memory.put(ARRAY, array);
        memory.put_word(0x60_000, 0);
        memory
    }

    fn offset(memory: &Memory, name: &str) -> Option<u64> {
        let read = |address: u64, buffer: &mut [u8]| memory.read(address, buffer);
        let description = Description::read(DESCRIBED_AT, &read).expect("all that is needed");
        Machine::of(&description, &read).offset(CLASS, name)
    }

    #[test]
    fn a_field_is_found_in_an_array_of_numbers_and_in_a_stream() {
        // Lengths first. Offsets in the array have two bits of their own.
        let numbers: [u16; 12] = [0, 1, 0, 0, 1, 0, 0, 3, 0, 0, 28 << 2 | 1, 0];
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let array = [&12_u32.to_le_bytes()[..], &bytes].concat();
        let fields = [
            ("InstanceKlass", "_fields", false, 24),
            ("Array<u2>", "_data", false, 4),
        ];
        let memory = classes(&fields, &array);
        assert_eq!(offset(&memory, "task"), Some(28));
        assert_eq!(offset(&memory, "none"), None);

        // Two fields, the first of which has three numbers more.
        let digits = [2, 0, 1, 0, 8, 0, 0b1_0101, 7, 7, 7, 3, 0, 28, 0, 0];
        let digits: Vec<u8> = digits.iter().map(|digit: &u8| digit + 1).collect();
        let stream = [&15_u32.to_le_bytes()[..], &digits].concat();
        let fields = [
            ("InstanceKlass", "_fieldinfo_stream", false, 24),
            ("Array<u1>", "_data", false, 4),
        ];
        let memory = classes(&fields, &stream);
        assert_eq!(offset(&memory, "task"), Some(28));
        assert_eq!(offset(&memory, "none"), None);
    }

    #[test]
    fn a_hostile_class_has_no_fields() {
        let fields = [
            ("InstanceKlass", "_fields", false, 24),
            ("Array<u2>", "_data", false, 4),
        ];
        let memory = classes(&fields, &u32::MAX.to_le_bytes());
        assert_eq!(offset(&memory, "task"), None);
        // It is its own parent.
        memory.put_word(PARENT + 8, PARENT);
        assert_eq!(offset(&memory, "none"), None);
        let memory = classes(&[("ConstantPool", "_length", false, u64::MAX - 9)], &[]);
        assert_eq!(offset(&memory, "task"), None);
    }

    #[test]
    fn numbers_end_with_a_lower_byte() {
        // 0, 190, 191 = 191 + 0 * 64, 192 = 192 + 0 * 64, 300 = 236 + 1 * 64.
        let bytes = [1, 191, 192, 1, 193, 1, 237, 2];
        let numbers: Vec<u32> = Numbers(&bytes).collect();
        assert_eq!(numbers, [0, 190, 191, 192, 300]);
        // A 0 is no digit, and a number may be cut off.
        assert_eq!(Numbers(&[0, 1]).next(), None);
        assert_eq!(Numbers(&[255]).next(), None);
        assert!(Numbers(&[255; 9]).next().is_some());
    }
}
