//! No chain of functions takes more stack than the kernel has for it, on either machine: the verifier's rule, held to before any kernel
//! is asked. What fits on x86-64 need not fit on arm64, whose registers are twice as many.

use std::collections::HashMap;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind};

mod compile;

/// `MAX_BPF_STACK` and `MAX_CALL_FRAMES`.
const STACK: u64 = 512;
const FRAMES: usize = 8;
/// The verifier rounds each frame up to it, and takes one that is empty for one of a byte (`check_max_stack_depth`).
const ROUNDED_TO: u64 = 32;
const LENGTH: usize = 8;

/// Instructions, by their first byte.
const MOVE: u8 = 0xbf;
const ADD_NUMBER: u8 = 0x07;
const ADD: u8 = 0x0f;
const CALL: u8 = 0x85;
const WIDE_NUMBER: u8 = 0x18;
/// Classes, in its lowest bits.
const CLASS: u8 = 0x07;
const LOAD: u8 = 1;
const STORE_NUMBER: u8 = 2;
const STORE: u8 = 3;
const CALCULATION: u8 = 7;
/// A call's second register, if it calls a function of the program (`BPF_PSEUDO_CALL`).
const FUNCTION: usize = 1;
const FRAME_POINTER: usize = 10;

type Place = (SectionIndex, u64);

#[derive(Default)]
struct Function {
    name: String,
    /// Bytes below its frame pointer.
    frame: u64,
    calls: Vec<Place>,
}

struct Instruction([u8; LENGTH]);

impl Instruction {
    fn code(&self) -> u8 {
        self.0[0]
    }

    fn to(&self) -> usize {
        (self.0[1] & 0xf).into()
    }

    fn from(&self) -> usize {
        (self.0[1] >> 4).into()
    }

    fn offset(&self) -> i64 {
        i16::from_le_bytes([self.0[2], self.0[3]]).into()
    }

    fn number(&self) -> i32 {
        i32::from_le_bytes([self.0[4], self.0[5], self.0[6], self.0[7]])
    }
}

/// Bytes that instructions reach below the frame pointer, as clang writes them: a pointer to a frame is a copy of the frame pointer to which
/// a number is added, and what it points to ends before the next one.
fn frame_of(code: &[Instruction]) -> u64 {
    let mut pointers = [None; 16];
    pointers[FRAME_POINTER] = Some(0);
    let mut lowest = 0;
    for instruction in code {
        let (to, from) = (instruction.to(), instruction.from());
        let class = instruction.code() & CLASS;
        let reached = match class {
            LOAD => pointers[from].map(|base| base + instruction.offset()),
            STORE | STORE_NUMBER => pointers[to].map(|base| base + instruction.offset()),
            _ => None,
        };
        if class == CALCULATION && to != FRAME_POINTER {
            pointers[to] = match instruction.code() {
                MOVE => pointers[from],
                ADD_NUMBER => pointers[to].map(|base| base + i64::from(instruction.number())),
                // Somewhere behind it.
                ADD => pointers[to],
                _ => None,
            };
            lowest = lowest.min(pointers[to].unwrap_or(0));
        } else if class == LOAD {
            pointers[to] = None;
        }
        lowest = lowest.min(reached.unwrap_or(0));
    }
    lowest.unsigned_abs()
}

/// Functions of an object by their places. libbpf puts those of `.text` behind each program that calls them.
fn functions(file: &object::File) -> HashMap<Place, Function> {
    let mut found = HashMap::new();
    for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Text) {
        let index = symbol.section_index().expect("a section");
        let section = file.section_by_index(index).expect("a section");
        let (start, end) = (symbol.address(), symbol.address() + symbol.size());
        let bytes = section.data().expect("instructions");
        let code: Vec<_> = bytes[start as usize..end as usize]
            .chunks_exact(LENGTH)
            .map(|bytes| Instruction(bytes.try_into().expect("8 bytes")))
            .collect();
        let relocated: HashMap<u64, RelocationTarget> = section
            .relocations()
            .map(|(at, relocation)| (at, relocation.target()))
            .collect();
        let calls = code.iter().enumerate().filter_map(|(index, instruction)| {
            let at = start + (index * LENGTH) as u64;
            called(file, instruction, at, section.index(), relocated.get(&at))
        });
        let function = Function {
            name: symbol.name().expect("a name").to_owned(),
            frame: frame_of(&code),
            calls: calls.collect(),
        };
        found.insert((index, start), function);
    }
    found
}

/// The function that an instruction calls, or whose place it takes.
fn called(
    file: &object::File,
    instruction: &Instruction,
    at: u64,
    section: SectionIndex,
    relocated: Option<&RelocationTarget>,
) -> Option<Place> {
    let is_call = instruction.code() == CALL && instruction.from() == FUNCTION;
    let number = i64::from(instruction.number());
    let Some(RelocationTarget::Symbol(index)) = relocated else {
        // It counts from the next instruction on.
        let to = at as i64 + (number + 1) * LENGTH as i64;
        return is_call.then_some((section, to as u64));
    };
    let symbol = file.symbol_by_index(*index).expect("a symbol");
    let there = symbol.section_index()?;
    match symbol.kind() {
        SymbolKind::Text => Some((there, symbol.address())),
        // A place in the section, in instructions from behind the call, or in bytes.
        SymbolKind::Section if is_call => Some((there, ((number + 1) * LENGTH as i64) as u64)),
        SymbolKind::Section if instruction.code() == WIDE_NUMBER => {
            let is_code = file.section_by_index(there).expect("a section").kind();
            (is_code == object::SectionKind::Text).then_some((there, number as u64))
        }
        _ => None,
    }
}

/// The deepest chain from a function on: its bytes, and the names in it with their own. No function calls itself: the verifier refuses that.
fn deepest(functions: &HashMap<Place, Function>, from: Place) -> (u64, Vec<String>) {
    let function = functions
        .get(&from)
        .unwrap_or_else(|| panic!("no function at {from:?}"));
    let below = function.calls.iter().map(|call| deepest(functions, *call));
    let (bytes, mut chain) = below.max_by_key(|(bytes, _)| *bytes).unwrap_or_default();
    let own = function.frame.max(1).next_multiple_of(ROUNDED_TO);
    chain.insert(0, format!("{} ({own})", function.name));
    (own + bytes, chain)
}

fn chains_fit(architecture: &str) {
    let mut most = 0;
    for (name, object) in compile::objects(architecture) {
        let file = object::File::parse(&*object).expect("an object");
        let functions = functions(&file);
        for from in functions.keys() {
            let (bytes, chain) = deepest(&functions, *from);
            assert!(
                bytes <= STACK && chain.len() <= FRAMES,
                "{name}, {architecture}: {bytes} bytes of stack in {}",
                chain.join(" > ")
            );
            most = most.max(bytes);
        }
    }
    // Stacks are walked in functions of functions.
    assert!(most > STACK / 2, "{most} bytes: functions were not found");
}

#[test]
fn chains_of_functions_fit_the_stack_on_x86_64() {
    chains_fit("x86");
}

#[test]
fn chains_of_functions_fit_the_stack_on_arm64() {
    chains_fit("arm64");
}
