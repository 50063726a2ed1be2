//! Another account of what a file says: gimli's rows and its expression machine, run on made-up registers and memory.

use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, EvaluationResult, LittleEndian,
    Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
    UnwindTableRow, Value,
};
use object::{Object, ObjectKind, ObjectSection};
use unwind::{Architecture, End, Frame, Image, Table};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A xorshift generator: the same numbers in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

const SP: u64 = 0x7ffd_0000_0000;

/// Every address holds something else, and all of it looks like a place higher up on the stack.
pub(crate) fn memory(address: u64) -> Option<u64> {
    Some(SP + (1 << 36) + (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 28))
}

/// Register values by DWARF number; 16 is rip.
fn registers(ip: u64, random: &mut Random) -> [u64; 17] {
    let mut all = [0; 17];
    all.fill_with(|| SP + 8 * random.below(1 << 30));
    all[7] = SP;
    all[16] = ip;
    all
}

/// What a comparison met.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// gimli's rows.
    pub(crate) rows: u64,
    /// Addresses asked for.
    pub(crate) addresses: u64,
    /// Rows that our rules cannot say.
    pub(crate) unsupported: Vec<String>,
    /// Functions whose instructions gimli refuses.
    pub(crate) broken: Vec<String>,
    /// Rows where rbp is lost.
    pub(crate) lost: u64,
    /// Addresses where the caller's rbx is known, and has been saved.
    pub(crate) bx: u64,
    pub(crate) ends: u64,
    pub(crate) signals: u64,
    /// What should be empty.
    pub(crate) differing: Vec<String>,
}

/// Compares a file's table with gimli's account of its `.eh_frame`; `None` when it has none.
pub(crate) fn compare(path: &Path) -> Option<Outcome> {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).ok()?;
    if file.kind() == ObjectKind::Relocatable {
        return None;
    }
    let section = file.section_by_name(".eh_frame")?;
    let image = Image::read(&std::fs::File::open(path).unwrap()).ok()?;
    let (table, _) = image.table().unwrap();
    let mut eh_frame = EhFrame::new(section.data().ok()?, LittleEndian);
    eh_frame.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let mut comparison = Comparison {
        table: &table,
        section: eh_frame,
        random: Random(0x1234_5678_9abc_def1),
        outcome: Outcome::default(),
    };
    let mut ranges = Vec::new();
    let mut entries = eh_frame.entries(&bases);
    let mut context = UnwindContext::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(fde) = entry else { continue };
        let fde = fde.parse(EhFrame::cie_from_offset).unwrap();
        if fde.initial_address() == 0 || fde.len() == 0 {
            continue;
        }
        ranges.push(fde.initial_address()..fde.end_address());
        let mut rows = fde.rows(&eh_frame, &bases, &mut context).unwrap();
        loop {
            match rows.next_row() {
                Ok(Some(row)) => comparison.row(row),
                Ok(None) => break,
                Err(error) => {
                    let text = format!("{:#x}: {error}", fde.initial_address());
                    comparison.outcome.broken.push(text);
                    break;
                }
            }
        }
    }
    if let Some(plt) = file.section_by_name(".plt")
        && !ranges.iter().any(|range| range.contains(&plt.address()))
        && table.lookup(plt.address()) != unwind::Rule::UNCOVERED
    {
        // Known without a description; no gap.
        ranges.push(plt.address()..plt.address() + plt.size());
    }
    ranges.sort_by_key(|range| range.start);
    for pair in ranges.windows(2) {
        comparison.gap(pair[0].end, pair[1].start);
    }
    if let Some(last) = ranges.last() {
        comparison.gap(last.end, last.end + 5000);
        let first = ranges[0].start;
        comparison.gap(first.saturating_sub(5000).max(1), first);
    }
    Some(comparison.outcome)
}

struct Comparison<'a> {
    table: &'a Table,
    section: EhFrame<Slice<'a>>,
    random: Random,
    outcome: Outcome,
}

impl Comparison<'_> {
    fn row(&mut self, row: &UnwindTableRow<usize>) {
        let length = row.end_address().saturating_sub(row.start_address());
        if length == 0 {
            return;
        }
        self.outcome.rows += 1;
        let mut addresses = vec![row.start_address(), row.end_address() - 1];
        addresses.extend((0..2).map(|_| row.start_address() + self.random.below(length)));
        for ip in addresses {
            self.outcome.addresses += 1;
            if let Err(what) = self.address(row, ip) {
                self.outcome.differing.push(format!("{ip:#x}: {what}"));
            }
        }
    }

    fn address(&mut self, row: &UnwindTableRow<usize>, ip: u64) -> Result<(), String> {
        let registers = registers(ip, &mut self.random);
        let frame = Frame::new(Architecture::X86_64, ip, registers[7], registers[6])
            .with_leaf(&registers[..16]);
        let rule = self.table.lookup(ip);
        let ours = frame.caller(rule, memory);
        let machine = Machine {
            section: self.section,
            registers,
        };
        let theirs = machine.caller(row);
        let detail = || format!("{rule:?} gives {ours:x?}, gimli {theirs:x?} from {row:?}");
        match (&ours, &theirs) {
            (Err(End::Unsupported), _) => {
                if ip == row.start_address() {
                    self.outcome.unsupported.push(detail());
                }
            }
            (Err(End::Root), None) => self.outcome.ends += 1,
            (Ok(ours), Some([ip, sp, bp, saved_bx])) => {
                self.outcome.signals += u64::from(ours.exact);
                self.outcome.lost += u64::from(ours.bp.is_none());
                if (ours.ip, ours.sp) != (*ip, *sp) || ours.bp.is_some_and(|ours| ours != *bp) {
                    return Err(detail());
                }
                if let Some(bx) = ours.bx {
                    if bx != *saved_bx {
                        return Err(detail());
                    }
                    let is_saved =
                        matches!(row.register(Register(3)), Some(RegisterRule::Offset(_)));
                    self.outcome.bx += u64::from(is_saved);
                }
            }
            _ => return Err(detail()),
        }
        Ok(())
    }

    /// Between two functions: padding belongs to the one before, the rest to nobody.
    fn gap(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let before = self.table.lookup(start - 1);
        for address in [start, start + self.random.below(end - start), end - 1] {
            let rule = self.table.lookup(address);
            let expected = if end - start < 16 {
                before
            } else {
                unwind::Rule::UNCOVERED
            };
            if rule != expected {
                let text = format!("{address:#x} in gap {start:#x}..{end:#x}: {rule:?}");
                self.outcome.differing.push(text);
            }
        }
    }
}

/// Registers, and expressions that are run on them.
struct Machine<'a> {
    section: EhFrame<Slice<'a>>,
    registers: [u64; 17],
}

impl Machine<'_> {
    /// The caller's rip, rsp, rbp and rbx; `None` for the outermost frame.
    fn caller(&self, row: &UnwindTableRow<usize>) -> Option<[u64; 4]> {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.registers[usize::from(register.0)].wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => self.run(expression, None),
        };
        let value = |number: u16, default| match row.register(Register(number)) {
            None | Some(RegisterRule::SameValue) => Some(default),
            Some(RegisterRule::Undefined) => None,
            Some(RegisterRule::Offset(n)) => memory(cfa.wrapping_add_signed(n)),
            Some(RegisterRule::ValOffset(n)) => Some(cfa.wrapping_add_signed(n)),
            Some(RegisterRule::Register(other)) => Some(self.registers[usize::from(other.0)]),
            Some(RegisterRule::Expression(e)) => memory(self.run(&e, Some(cfa))),
            Some(RegisterRule::ValExpression(e)) => Some(self.run(&e, Some(cfa))),
            Some(other) => panic!("{other:?}"),
        };
        let ip = value(16, self.registers[16])?;
        let sp = value(7, cfa).unwrap();
        let other = |number: u16| value(number, self.registers[usize::from(number)]);
        let [bp, bx] = [6, 3].map(|number| other(number).unwrap_or_default());
        Some([ip, sp, bp, bx])
    }

    fn run(&self, expression: &UnwindExpression<usize>, initial: Option<u64>) -> u64 {
        let encoding = gimli::Encoding {
            address_size: 8,
            format: gimli::Format::Dwarf32,
            version: 4,
        };
        let mut evaluation = expression.get(&self.section).unwrap().evaluation(encoding);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, .. } => {
                    let value = Value::Generic(memory(address).unwrap());
                    evaluation.resume_with_memory(value).unwrap()
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.registers[usize::from(register.0)]);
                    evaluation.resume_with_register(value).unwrap()
                }
                other => panic!("{other:?}"),
            };
        }
        match evaluation.result()[0].location {
            Location::Address { address } => address,
            ref other => panic!("{other:?}"),
        }
    }
}
