//! Every way in which a stack ends.

use unwind::{Cfa, Rule};

use crate::plan::{Plan, pack, register_of};
use crate::stack::{CFI, NO_TABLE, ROOT, Return, Stack, UNREADABLE, UNSUPPORTED};
use crate::unwinder::at;

fn rule(cfa: Cfa, cfa_offset: i32) -> Rule {
    Rule {
        cfa,
        cfa_offset,
        ..Rule::default()
    }
}

impl Stack<'_> {
    /// `None`: not in this frame.
    pub(crate) fn draw_end(&mut self) -> Option<Plan> {
        if !self.asked.by_tables {
            return self.end_by_frame_pointer();
        }
        let drawn = self.draw_rule();
        match self.rng.u32(0..10) {
            0 => Some(self.ends_by(Rule::END, ROOT)),
            1 => Some(self.ends_by(Rule::UNSUPPORTED, UNSUPPORTED)),
            2 => self.by_rule(drawn).and_then(Self::returns_nowhere),
            3 => {
                let plan = self.by_rule(drawn)?;
                self.is_unreadable(plan)
            }
            4 => {
                let down = rule(Cfa::Sp, -8 * self.rng.i32(0..10));
                Some(self.ends_by(down, NO_TABLE))
            }
            5 => self.by_no_register(),
            6 if !self.state.leaf => {
                let of = at::DWARF[self.rng.usize(0..14)].0;
                Some(self.ends_by(rule(Cfa::RaRegister, pack(0, of)?), UNSUPPORTED))
            }
            7 => {
                let plan = self.by_signal()?;
                if self.rng.bool() {
                    Self::returns_nowhere(plan)
                } else {
                    self.is_unreadable(plan)
                }
            }
            _ => self.end_by_frame_pointer(),
        }
    }

    fn ends_by(&self, rule: Rule, end: u8) -> Plan {
        Plan {
            rule: Some(rule),
            end: Some(end),
            ..Plan::on(self.state)
        }
    }

    /// The return address is 0.
    fn returns_nowhere(mut plan: Plan) -> Option<Plan> {
        match plan.back {
            Return::Word(at) => plan.writes.push((at, vec![0; 8])),
            Return::Half(at) => plan.writes.push((at, vec![0; 4])),
            Return::Register(_) => {}
            Return::Here => return None,
        }
        plan.end = Some(ROOT);
        Some(plan)
    }

    /// Something of what is looked at is not there.
    fn is_unreadable(&mut self, mut plan: Plan) -> Option<Plan> {
        let count = plan.reads.len();
        let (at, bytes) = plan.reads[self.rng.choice(0..count)?];
        // Words in a callee's frame may have been read with it.
        if at < self.state.sp {
            return None;
        }
        plan.hole = Some(
            at + if bytes == 8 {
                0
            } else {
                self.rng.u64(0..bytes)
            },
        );
        plan.end = Some(UNREADABLE);
        Some(plan)
    }

    /// A register that nobody knows, or that is 0.
    fn by_no_register(&mut self) -> Option<Plan> {
        let high = 8 * self.rng.i64(-8..8);
        let any = at::DWARF[self.rng.usize(0..14)].0;
        if !self.state.leaf {
            let number = if self.state.bx.is_some() {
                any.max(4)
            } else {
                any
            };
            return Some(self.ends_by(rule(Cfa::Register, pack(high, number)?), UNSUPPORTED));
        }
        let mut plan = Plan::on(self.state);
        let number = [any, 6, 7, 16, 200][self.rng.usize(0..5)];
        if let Some(register) = register_of(number) {
            if self.kept.contains(&register) {
                return None;
            }
            plan.registers.push((register, 0));
        }
        plan.rule = Some(rule(Cfa::Register, pack(high, number)?));
        plan.end = Some(UNSUPPORTED);
        Some(plan)
    }

    fn end_by_frame_pointer(&mut self) -> Option<Plan> {
        let mut plan = Plan::on(self.state);
        let is_none = |bp: u64| bp < self.state.sp || bp & 3 != 0;
        match self.state.bp {
            _ if self.asked.mode == CFI => plan.end = Some(NO_TABLE),
            Some(0) => plan.is_outermost = true,
            Some(bp) if !is_none(bp) => {
                let plan = self.by_frame_pointer(false)?;
                if self.rng.bool() {
                    return self.frame_is_unreadable(plan, bp);
                }
                return Self::returns_nowhere(plan).map(|plan| Plan {
                    end: None,
                    is_outermost: true,
                    ..plan
                });
            }
            _ => plan.end = Some(NO_TABLE),
        }
        Some(plan)
    }

    fn frame_is_unreadable(&mut self, mut plan: Plan, bp: u64) -> Option<Plan> {
        let bytes = if self.asked.compat { 8 } else { 16 };
        plan.hole = Some(bp + self.rng.u64(0..bytes));
        plan.end = Some(UNREADABLE);
        Some(plan)
    }
}
