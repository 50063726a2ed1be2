//! Instructions of an object, and what they refer to.

use std::collections::HashMap;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind};

pub(crate) const LENGTH: usize = 8;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const JUMP: u8 = 0x05;
pub(crate) const LONG_JUMP: u8 = 0x06;
pub(crate) const EXIT: u8 = 0x95;
pub(crate) const LOAD_WIDE: u8 = 0x18;
/// `src` of a call that stays in the object.
const OWN: u8 = 1;

/// Something that an instruction refers to.
pub(crate) enum Reference {
    /// Something that the kernel has, or not.
    Kernel(String),
    /// An instruction, before the call's own offset is added.
    Code(SectionIndex, i64),
    Data,
}

pub(crate) struct Code {
    pub(crate) instructions: Vec<[u8; LENGTH]>,
    pub(crate) references: HashMap<usize, Reference>,
}

fn references(
    file: &object::File<'_>,
    section: &object::Section<'_, '_>,
) -> HashMap<usize, Reference> {
    let mut found = HashMap::new();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            continue;
        };
        let symbol = file.symbol_by_index(index).expect("a symbol");
        let reference = match (symbol.kind(), symbol.section_index()) {
            (_, None) => Reference::Kernel(symbol.name().expect("a name").to_owned()),
            (SymbolKind::Text | SymbolKind::Section, Some(section)) => {
                Reference::Code(section, symbol.address() as i64 / LENGTH as i64)
            }
            _ => Reference::Data,
        };
        found.insert(offset as usize / LENGTH, reference);
    }
    found
}

pub(crate) fn code_of(file: &object::File<'_>) -> HashMap<SectionIndex, Code> {
    let sections = file.sections();
    let code = sections.map(|section| {
        let bytes = section.data().unwrap_or_default();
        let code = Code {
            instructions: bytes.as_chunks().0.to_vec(),
            references: references(file, &section),
        };
        (section.index(), code)
    });
    code.collect()
}

impl Code {
    /// A jump's target, from behind the instruction.
    pub(crate) fn jump(index: usize, by: i64) -> usize {
        usize::try_from(index as i64 + 1 + by).expect("within")
    }

    /// The function of the object's that an instruction of `section` calls.
    pub(crate) fn own_function(
        &self,
        section: SectionIndex,
        index: usize,
    ) -> Option<(SectionIndex, usize)> {
        let [_, registers, _, _, immediate @ ..] = self.instructions[index];
        let immediate = i64::from(i32::from_le_bytes(immediate));
        match self.references.get(&index) {
            Some(Reference::Code(into, symbol)) => Some((*into, (symbol + immediate + 1) as usize)),
            None if registers >> 4 == OWN => Some((section, Self::jump(index, immediate))),
            _ => None,
        }
    }
}
