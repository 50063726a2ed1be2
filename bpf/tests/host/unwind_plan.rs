//! One frame of a stack in the making: its rule, what is where it looks, and what its caller then has in its registers.

use unwind::{Cfa, FpMode, Rule};

use crate::memory::Memory;
use crate::stack::{Return, Stack, State};
use crate::unwinder::at;

/// rbx.
const BX: u8 = 3;
/// The rule's slot of rbx: it is where it was.
const KEPT: u8 = 63;
/// Offsets in the signal frame, from the stack pointer on: of rbp and rbx, of rsp and rip.
const SIGNAL_BP: u64 = 120;
const SIGNAL_SP: u64 = 160;

/// A way to leave a frame, or to end the stack in it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rule: Option<Rule>,
    /// Code that is there.
    pub(crate) ip: Option<u64>,
    pub(crate) low: Option<(u64, u64)>,
    pub(crate) before: Vec<u8>,
    pub(crate) code: Vec<u8>,
    /// Reads of a walk: address and bytes.
    pub(crate) reads: Vec<(u64, u64)>,
    pub(crate) writes: Vec<(u64, Vec<u8>)>,
    pub(crate) registers: Vec<(usize, u64)>,
    pub(crate) next: State,
    pub(crate) back: Return,
    /// An address that is not there.
    pub(crate) hole: Option<u64>,
    pub(crate) end: Option<u8>,
    /// It is a root by its frame pointer.
    pub(crate) is_outermost: bool,
}

/// Adds what is read, if it is apart from the rest.
pub(crate) fn fit(reads: &mut Vec<(u64, u64)>, at: u64, bytes: u64) -> Option<()> {
    let end = at.checked_add(bytes)?;
    let is_apart = |(other, length): &(u64, u64)| end <= *other || other + length <= at;
    if !reads.iter().all(is_apart) {
        return None;
    }
    reads.push((at, bytes));
    Some(())
}

/// `None`: it does not fit into 24 bits.
pub(crate) fn pack(high: i64, low: u8) -> Option<i32> {
    Some(i32::try_from(high).ok()?.checked_mul(256)? | i32::from(low))
}

pub(crate) fn register_of(number: u8) -> Option<usize> {
    at::DWARF.iter().find(|it| it.0 == number).map(|it| it.1)
}

impl Plan {
    pub(crate) fn on(state: State) -> Self {
        Self {
            rule: None,
            ip: None,
            low: None,
            before: Vec::new(),
            code: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            registers: Vec::new(),
            next: State {
                exact: false,
                leaf: false,
                after_call: false,
                ..state
            },
            back: Return::Here,
            hole: None,
            end: None,
            is_outermost: false,
        }
    }

    pub(crate) fn is_signal(&self) -> bool {
        self.rule == Some(Rule::SIGNAL)
    }

    pub(crate) fn write(&mut self, at: u64, word: u64) -> Option<()> {
        fit(&mut self.reads, at, 8)?;
        self.writes.push((at, word.to_le_bytes().to_vec()));
        Some(())
    }

    /// `None`: other frames need some of it.
    pub(crate) fn settled(self, memory: &Memory) -> Option<Self> {
        let is_free = self
            .reads
            .iter()
            .all(|(at, bytes)| memory.is_free(*at, *bytes));
        is_free.then_some(self)
    }
}

impl Stack<'_> {
    /// An rbx that a rule can find a frame from; 0: none.
    fn draw_bx(&mut self, cfa: u64) -> u64 {
        match self.rng.u32(0..6) {
            0 => 0,
            _ => cfa + 8 * self.rng.u64(0..100),
        }
    }

    fn draw_cfa(&mut self) -> u64 {
        let far = if self.rng.u32(0..20) == 0 {
            0x12_0000
        } else {
            0
        };
        self.state.sp + far + 8 * self.rng.u64(1..=20)
    }

    /// One that fits what is known of this frame, as far as its numbers can.
    pub(crate) fn draw_rule(&mut self) -> Rule {
        let (sp, cfa) = (self.state.sp, self.draw_cfa());
        let bp = self.state.bp.unwrap_or(0);
        let distance = |from: u64| i32::try_from(cfa.wrapping_sub(from).cast_signed()).unwrap_or(8);
        let low = self.rng.u8(..);
        let high = 8 * self.rng.i64(-8..24);
        let packed = |high, low| pack(high, low).unwrap_or(8);
        let any = at::DWARF[self.rng.usize(0..14)].0;
        let (cfa, cfa_offset) = match self.rng.u32(0..12) {
            0..=3 => (Cfa::Sp, distance(sp)),
            4 | 5 => (Cfa::Bp, distance(bp)),
            6 => (Cfa::SpDeref, packed(high, low)),
            7 => (Cfa::BpDeref, packed(high, low)),
            8 => (Cfa::Plt, self.rng.i32(1..16)),
            9 if self.state.leaf => (Cfa::RaRegister, packed(high.max(0), any)),
            _ if self.state.leaf => (Cfa::Register, packed(high, any)),
            _ => {
                let bx = self.state.bx.unwrap_or(cfa);
                (Cfa::Register, packed(distance(bx).into(), BX))
            }
        };
        let (fp, fp_offset) = match self.rng.u32(0..12) {
            _ if cfa == Cfa::RaRegister => (FpMode::Same, 0),
            0..=3 => (FpMode::Same, 0),
            4..=6 => (FpMode::AtCfa, -8 * self.rng.i16(2..=8)),
            7 => (FpMode::AtCfa, -8 * self.rng.i16(9..=12)),
            8 => (FpMode::AtCfa, self.rng.i16(-100..64)),
            9 | 10 => (FpMode::AtBp, self.rng.i16(-200..200)),
            _ => (FpMode::Lost, 0),
        };
        let slot = match self.rng.u32(0..8) {
            _ if cfa == Cfa::RaRegister => 0,
            0 | 1 => KEPT,
            2 | 3 => self.rng.u8(2..KEPT),
            _ => 0,
        };
        Rule {
            cfa,
            fp,
            fp_offset,
            cfa_offset,
            slot,
        }
    }

    /// A leaf's register gets what the rule needs. `None`: it is kept for something else.
    fn set_register(&self, plan: &mut Plan, number: u8, value: u64) -> Option<()> {
        let register = register_of(number)?;
        if self.kept.contains(&register) || value == 0 {
            return None;
        }
        plan.registers.push((register, value));
        Some(())
    }

    fn canonical_frame(&mut self, plan: &mut Plan, rule: Rule) -> Option<u64> {
        let (sp, bp) = (self.state.sp, self.state.bp);
        let offset = i64::from(rule.cfa_offset);
        let further = sp + 8 * self.rng.u64(2..40);
        let high = i64::from(rule.high());
        Some(match rule.cfa {
            Cfa::Sp => sp.wrapping_add_signed(offset),
            Cfa::Bp => bp?.wrapping_add_signed(offset),
            Cfa::SpDeref | Cfa::BpDeref => {
                let base = if rule.cfa == Cfa::SpDeref { sp } else { bp? };
                plan.write(
                    base.wrapping_add_signed(high),
                    further - u64::from(rule.low()),
                )?;
                further
            }
            Cfa::Plt => {
                let threshold = u64::try_from(offset).ok()?;
                let is_pushed = self.rng.bool();
                plan.low = Some(if is_pushed {
                    (threshold, 16)
                } else {
                    (0, threshold)
                });
                sp + if is_pushed { 16 } else { 8 }
            }
            Cfa::Register if self.state.leaf => {
                self.set_register(plan, rule.low(), further.wrapping_add_signed(-high))?;
                further
            }
            Cfa::Register if rule.low() == BX => self.state.bx?.wrapping_add_signed(high),
            _ => return None,
        })
    }

    /// The frame has this rule. `None`: it cannot.
    pub(crate) fn by_rule(&mut self, rule: Rule) -> Option<Plan> {
        let mut plan = Plan::on(self.state);
        plan.rule = Some(rule);
        if rule.cfa == Cfa::RaRegister {
            let register = register_of(rule.low())?;
            if !self.state.leaf || self.kept.contains(&register) {
                return None;
            }
            plan.next.sp = self.state.sp.wrapping_add_signed(rule.high().into());
            plan.next.bx = None;
            plan.registers.push((register, 0));
            plan.back = Return::Register(register);
            return Some(plan);
        }
        let cfa = self.canonical_frame(&mut plan, rule)?;
        if cfa <= self.state.sp || cfa - self.state.sp > 1 << 24 {
            return None;
        }
        fit(&mut plan.reads, cfa - 8, 8)?;
        plan.back = Return::Word(cfa - 8);
        plan.next.sp = cfa;
        plan.next.bp = match rule.fp {
            FpMode::Same => self.state.bp,
            FpMode::Lost => None,
            FpMode::AtCfa | FpMode::AtBp => {
                let base = if rule.fp == FpMode::AtCfa {
                    cfa
                } else {
                    self.state.bp?
                };
                let saved = self.draw_bp(cfa, false);
                plan.write(base.wrapping_add_signed(rule.fp_offset.into()), saved)?;
                Some(saved)
            }
        };
        plan.next.bx = match rule.slot {
            0 => None,
            KEPT if self.state.leaf => Some(self.keep_bx(&mut plan, cfa)),
            KEPT => self.state.bx,
            slot => {
                let saved = self.draw_bx(cfa);
                plan.write(cfa - 8 * u64::from(slot), saved)?;
                Some(saved)
            }
        };
        plan.next.bx = plan.next.bx.filter(|bx| *bx != 0);
        plan.settled(&self.world.memory)
    }

    /// A leaf's rbx.
    fn keep_bx(&mut self, plan: &mut Plan, cfa: u64) -> u64 {
        let register = register_of(BX).expect("a register");
        if let Some((_, value)) = plan.registers.iter().find(|it| it.0 == register) {
            return *value;
        }
        if self.kept.contains(&register) {
            return self.registers[register];
        }
        let value = self.draw_bx(cfa);
        plan.registers.push((register, value));
        value
    }

    /// The caller's frame pointer where this one's points to, and above that the return address.
    pub(crate) fn by_frame_pointer(&mut self, next_is_last: bool) -> Option<Plan> {
        let mut plan = Plan::on(self.state);
        let bp = self.state.bp?;
        let word = if self.asked.compat { 4 } else { 8 };
        if bp == 0 || bp < self.state.sp || bp & 3 != 0 {
            return None;
        }
        fit(&mut plan.reads, bp, 2 * word)?;
        let saved = self.draw_bp(bp + 2 * word, next_is_last);
        let bytes = saved.to_le_bytes()[..word as usize].to_vec();
        plan.writes.push((bp, bytes));
        plan.next.bp = Some(saved);
        plan.next.sp = bp + 2 * word;
        plan.next.bx = None;
        plan.back = if self.asked.compat {
            Return::Half(bp + 4)
        } else {
            Return::Word(bp + 8)
        };
        if self.asked.by_tables && self.rng.u32(0..4) == 0 {
            // Code that leaves its frame, if a call were before what is on its stack.
            plan.code = vec![0xc3];
            plan.write(self.state.sp, 0x10)?;
        }
        plan.settled(&self.world.memory)
    }

    /// A signal's frame: what it interrupted may be on another stack.
    pub(crate) fn by_signal(&mut self) -> Option<Plan> {
        let mut plan = Plan::on(self.state);
        let frame = self.state.sp;
        let stack = 0x7ffd_0000_0000 + self.rng.u64(0..64) * 0x100_0000;
        let sp = stack + 8 * self.rng.u64(0..1 << 12);
        let (bp, bx) = (self.draw_bp(sp, false), self.draw_bx(sp));
        plan.rule = Some(Rule::SIGNAL);
        plan.write(frame + SIGNAL_BP, bp)?;
        plan.write(frame + SIGNAL_BP + 8, bx)?;
        plan.write(frame + SIGNAL_SP, sp)?;
        fit(&mut plan.reads, frame + SIGNAL_SP + 8, 8)?;
        plan.back = Return::Word(frame + SIGNAL_SP + 8);
        plan.next = State {
            sp,
            bp: Some(bp),
            bx: Some(bx).filter(|bx| *bx != 0),
            exact: true,
            ..plan.next
        };
        plan.settled(&self.world.memory)
    }
}
