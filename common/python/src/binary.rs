//! An interpreter's file: where its data and its loop lie.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use elf::{Headers, Load};

use crate::version::Version;

/// Facts that an interpreter's file says, in ELF addresses.
#[derive(Clone, Debug)]
pub struct Binary {
    /// The segments.
    pub loads: Vec<Load>,
    /// The version, if the file has it as a number (from 3.11 on).
    pub version: Option<Version>,
    /// `_PyRuntime`.
    pub runtime: u64,
    /// `PyCode_Type`, if it is exported.
    pub code_type: Option<u64>,
    /// `PyFrame_Type`, if it is exported.
    pub frame_type: Option<u64>,
    /// The loop and its parts.
    pub loops: Vec<Range<u64>>,
}

impl Binary {
    /// Reads a file, which may be anyone's; `None`: it is no interpreter.
    pub fn read(file: &File) -> Option<Self> {
        let names = [
            "_PyRuntime",
            "_PyEval_EvalFrameDefault",
            "Py_Version",
            "PyCode_Type",
            "PyFrame_Type",
        ];
        let headers = Headers::read(file)?;
        // An interpreter exports its functions to the modules that it loads, unless it loads none. Other programs may have a million symbols.
        let found = match headers.dynamic {
            Some(_) => elf::dynamic_symbols(file, names),
            None => elf::symbols(file, names),
        };
        let [runtime, main_loop, version, code_type, frame_type] = found?;
        let (runtime, main_loop) = (runtime?, main_loop?);
        let main_loop = main_loop.address..main_loop.address.checked_add(main_loop.size)?;
        let mut loops = elf::parts(file, &headers, &main_loop);
        loops.insert(0, main_loop);
        Some(Self {
            version: version.and_then(|symbol| number(file, &headers, symbol.address)),
            runtime: runtime.address,
            code_type: code_type.map(|symbol| symbol.address),
            frame_type: frame_type.map(|symbol| symbol.address),
            loops,
            loads: headers.loads,
        })
    }

    /// The number to add to ELF addresses if byte `offset` of the file is mapped at `start`. The segment with more of the file wins: the
    /// page between two is mapped for both.
    pub(crate) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let holding = self.loads.iter().filter(|load| load.holds(offset));
        let load = holding.max_by_key(|load| load.offset)?;
        Some(load.bias(start, offset))
    }
}

fn number(file: &File, headers: &Headers, address: u64) -> Option<Version> {
    let (offset, _) = headers.offset(address)?;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Version::of_word(u64::from_le_bytes(bytes))
}
