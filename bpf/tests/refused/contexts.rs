//! Programs read their context at offsets that the instruction has: the verifier refuses a load where the context's address was
//! calculated first ("dereference of modified ctx ptr").
//!
//! clang makes one of "this field or that" where it may choose an address and read there once; it may for each machine apart. A
//! context that a program hands on through memory is not followed, but for what it keeps on its own stack.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use object::{Object, ObjectSection, ObjectSymbol, SectionIndex, SymbolKind};

use crate::code::{CALL, Code, EXIT, JUMP, LENGTH, LOAD_WIDE, LONG_JUMP, code_of};
use crate::compile;

/// A register may hold the context's address, what was calculated from it, 0, or anything else.
const CONTEXT: u8 = 1;
const CALCULATED: u8 = 2;
const ZERO: u8 = 4;
const OTHER: u8 = 8;
const FRAME: usize = 10;
const ARGUMENTS: std::ops::RangeInclusive<usize> = 1..=5;

/// Contents that each register may have, and each word of the stack.
#[derive(Clone, Default, PartialEq)]
struct Held {
    registers: [u8; FRAME + 1],
    stack: BTreeMap<i16, u8>,
}

impl Held {
    /// Adds what another way to the same instruction leaves; whether that is news.
    fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.registers.iter_mut().zip(other.registers) {
            *mine |= theirs;
        }
        for (word, theirs) in &other.stack {
            *self.stack.entry(*word).or_default() |= theirs;
        }
        *self != before
    }

    fn at_begin_of_function(&self) -> Self {
        let mut held = Self::default();
        held.registers[ARGUMENTS].copy_from_slice(&self.registers[ARGUMENTS]);
        held
    }
}

/// An offset that is known when the program is loaded is 0 in the object, if it is the first field's.
fn sum(one: u8, other: u8) -> u8 {
    match (one, other) {
        (one, ZERO) => one,
        (ZERO, other) => other,
        _ if (one | other) & (CONTEXT | CALCULATED) != 0 => CALCULATED,
        _ => OTHER,
    }
}

type At = (SectionIndex, usize);

/// A program's instructions that read or write at a calculated address of the context.
struct Walk<'a> {
    code: &'a HashMap<SectionIndex, Code>,
    known: HashMap<At, Held>,
    open: Vec<At>,
    refused: BTreeSet<usize>,
    /// Loads of the context that are as they should be.
    plain: usize,
}

impl<'a> Walk<'a> {
    fn of(code: &'a HashMap<SectionIndex, Code>, program: At) -> Self {
        let mut walk = Self {
            code,
            known: HashMap::new(),
            open: Vec::new(),
            refused: BTreeSet::new(),
            plain: 0,
        };
        let mut held = Held::default();
        held.registers[1] = CONTEXT;
        walk.goes_to(program, &held);
        while let Some(at) = walk.open.pop() {
            walk.step(at);
        }
        walk
    }

    fn goes_to(&mut self, at: At, held: &Held) {
        let is_new = !self.known.contains_key(&at);
        if self.known.entry(at).or_default().join(held) || is_new {
            self.open.push(at);
        }
    }

    fn step(&mut self, at: At) {
        let (section, index) = at;
        let mut held = self.known[&at].clone();
        let code = &self.code[&section];
        let instruction = code.instructions[index];
        let [operation, _, low, high, immediate @ ..] = instruction;
        let offset = i64::from(i16::from_le_bytes([low, high]));
        let immediate = i64::from(i32::from_le_bytes(immediate));
        let mut next = vec![index + 1];
        match operation {
            EXIT => next.clear(),
            JUMP => next = vec![Code::jump(index, offset)],
            LONG_JUMP => next = vec![Code::jump(index, immediate)],
            LOAD_WIDE => next = vec![index + 2],
            CALL => {
                if let Some(function) = code.own_function(section, index) {
                    self.goes_to(function, &held.at_begin_of_function());
                }
                held.registers[..=5].fill(OTHER);
            }
            _ if matches!(operation & 7, 5 | 6) => next.push(Code::jump(index, offset)),
            _ => self.calculate(index, instruction, &mut held),
        }
        for index in next {
            self.goes_to((section, index), &held);
        }
    }

    /// Loads, stores and arithmetic.
    fn calculate(&mut self, index: usize, instruction: [u8; LENGTH], held: &mut Held) {
        let [operation, registers, low, high, immediate @ ..] = instruction;
        let immediate = i32::from_le_bytes(immediate);
        let (target, source) = (usize::from(registers & 0xf), usize::from(registers >> 4));
        let offset = i16::from_le_bytes([low, high]);
        let is_word = operation & 0x18 == 0x18;
        match operation & 7 {
            1 => {
                self.accesses(index, held.registers[source]);
                let kept = (source == FRAME && is_word).then_some(&held.stack);
                let kept = kept.and_then(|stack| stack.get(&offset));
                held.registers[target] = kept.copied().unwrap_or(OTHER);
            }
            class @ (2 | 3) => {
                self.accesses(index, held.registers[target]);
                if target == FRAME && is_word {
                    let stored = held.registers[source];
                    held.stack
                        .insert(offset, if class == 3 { stored } else { OTHER });
                }
            }
            class => {
                let other = match (operation & 8, immediate) {
                    (0, 0) => ZERO,
                    (0, _) => OTHER,
                    _ => held.registers[source],
                };
                held.registers[target] = match operation >> 4 {
                    0xb => other,
                    // Added or subtracted, in 64 bits.
                    0 | 1 if class == 7 => sum(held.registers[target], other),
                    _ => OTHER,
                };
            }
        }
    }

    fn accesses(&mut self, index: usize, through: u8) {
        if through & CALCULATED != 0 {
            self.refused.insert(index);
        }
        self.plain += usize::from(through == CONTEXT);
    }
}

fn hold_to_it(architecture: &str) {
    let mut plain = 0;
    for (name, object) in compile::objects(architecture) {
        let file = object::File::parse(&*object).expect("an object");
        let code = code_of(&file);
        for symbol in file.symbols() {
            let Some(section) = symbol.section_index() else {
                continue;
            };
            let at = file.section_by_index(section).expect("a section");
            // Functions of programs have what programs call them with.
            if symbol.kind() != SymbolKind::Text || at.name() == Ok(".text") {
                continue;
            }
            let first = symbol.address() as usize / LENGTH;
            let walk = Walk::of(&code, (section, first));
            let program = symbol.name().expect("a name");
            assert_eq!(
                walk.refused,
                BTreeSet::new(),
                "{architecture}: {name}, {program}"
            );
            plain += walk.plain;
        }
    }
    assert!(
        plain > 100,
        "{architecture}: {plain} loads of contexts, so these are none"
    );
}

#[test]
fn contexts_are_read_at_plain_offsets_on_x86() {
    hold_to_it("x86");
}

#[test]
fn contexts_are_read_at_plain_offsets_on_arm64() {
    hold_to_it("arm64");
}
