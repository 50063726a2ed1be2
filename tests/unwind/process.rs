//! This process as a walker sees it: its mappings with their tables, and its memory.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;

use unwind::{End, Frame, Image, Table, walk};

/// Code, with the index of its table and the bias of the addresses in it.
struct Code {
    range: Range<u64>,
    table: usize,
    bias: u64,
}

pub(crate) struct Process {
    code: Vec<Code>,
    tables: Vec<Table>,
    /// Paths by index of their tables.
    files: Vec<String>,
    readable: Vec<Range<u64>>,
}

impl Process {
    pub(crate) fn this() -> Self {
        let mut process = Self {
            code: Vec::new(),
            tables: Vec::new(),
            files: Vec::new(),
            readable: Vec::new(),
        };
        let mut images: HashMap<String, (usize, Image)> = HashMap::new();
        for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
            let (start, end) = words[0].split_once('-').unwrap();
            let range = hex(start)..hex(end);
            if words[1].starts_with('r') {
                process.readable.push(range.clone());
            }
            let Some(&path) = words.get(5).filter(|_| words[1].contains('x')) else {
                continue;
            };
            let image = match path {
                "[vdso]" => {
                    // SAFETY: the vDSO is mapped as long as the process lives, and nobody writes to it.
                    let bytes = unsafe {
                        std::slice::from_raw_parts(
                            start_pointer(&range),
                            (range.end - range.start) as usize,
                        )
                    };
                    Image::from_memory(bytes)
                }
                path => match File::open(path) {
                    Ok(file) => Image::read(&file),
                    Err(_) => continue,
                },
            };
            let (table, image) = images.entry(path.into()).or_insert_with(|| {
                let image = image.unwrap();
                process.tables.push(image.table().unwrap().0);
                process.files.push(path.into());
                (process.tables.len() - 1, image)
            });
            let bias = image.bias(range.start, hex(words[2])).unwrap();
            process.code.push(Code {
                range,
                table: *table,
                bias,
            });
        }
        process
    }

    pub(crate) fn walk(&self, frame: Frame) -> (Vec<u64>, End) {
        walk(
            frame,
            |address| self.word(address),
            |address| self.find(address),
            1000,
        )
    }

    fn find(&self, address: u64) -> Option<(&Table, u64)> {
        let code = self
            .code
            .iter()
            .find(|code| code.range.contains(&address))?;
        Some((&self.tables[code.table], code.bias))
    }

    /// Which file's code it is, for messages; by index of its table.
    #[cfg_attr(
        target_arch = "aarch64",
        expect(dead_code, reason = "steps ask for it")
    )]
    pub(crate) fn table(&self, address: u64) -> Option<usize> {
        self.code
            .iter()
            .find(|code| code.range.contains(&address))
            .map(|code| code.table)
    }

    /// Index of the table of the file called so.
    #[cfg_attr(
        target_arch = "aarch64",
        expect(dead_code, reason = "steps ask for it")
    )]
    pub(crate) fn table_of(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|path| path.ends_with(name))
    }

    fn word(&self, address: u64) -> Option<u64> {
        let last = address.checked_add(7)?;
        let readable = |at| self.readable.iter().any(|range| range.contains(&at));
        if !readable(address) || !readable(last) {
            return None;
        }
        // SAFETY: in a mapping that was readable; the walker only asks for stacks, which stay.
        Some(unsafe { std::ptr::read_unaligned(address as *const u64) })
    }
}

fn start_pointer(range: &Range<u64>) -> *const u8 {
    range.start as *const u8
}
