//! A stack, made frame by frame from the innermost one on, for code that is given rules for it: so its walk is known.

use fastrand::Rng;
use unwind::Rule;

use crate::forms::{Form, call};
use crate::plan::{Plan, fit};
use crate::unwinder::{MOST_DEPTH, Registers, at};
use crate::world::{Wanted, World};

/// `enum stack_end`.
pub(crate) const ROOT: u8 = 0;
pub(crate) const DEPTH: u8 = 1;
pub(crate) const NO_TABLE: u8 = 2;
pub(crate) const UNREADABLE: u8 = 3;
pub(crate) const UNSUPPORTED: u8 = 4;

/// `enum unwind_mode`.
pub(crate) const AUTO: u32 = 0;
pub(crate) const FP: u32 = 1;
pub(crate) const CFI: u32 = 2;

/// Options of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) mode: u32,
    pub(crate) compat: bool,
    /// Tables are found by a list of mappings, or by the kernel's.
    pub(crate) by_tables: bool,
    /// The kernel is asked for mappings.
    pub(crate) unlisted: bool,
    pub(crate) depth: usize,
    /// The walk begins with registers from outside the kernel.
    pub(crate) outside: bool,
}

/// The place to which the next frame's instruction is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Return {
    /// It is the innermost.
    Here,
    Word(u64),
    Half(u64),
    Register(usize),
}

/// The registers of a frame, as far as a walk can know them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) sp: u64,
    pub(crate) bp: Option<u64>,
    pub(crate) bx: Option<u64>,
    pub(crate) exact: bool,
    pub(crate) leaf: bool,
    /// The code returned from is known by its instructions, so a call must be before this.
    pub(crate) after_call: bool,
}

/// Results that a walk must have.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) registers: Registers,
    /// Instruction, stack and frame.
    pub(crate) from: [u64; 3],
    pub(crate) addresses: Vec<u64>,
    /// Stack pointer in each of those.
    pub(crate) pointers: Vec<u64>,
    pub(crate) end: u8,
    /// Plans by which it was made.
    pub(crate) plans: Vec<Plan>,
}

pub(crate) struct Stack<'w> {
    pub(crate) world: &'w mut World,
    pub(crate) rng: &'w mut Rng,
    pub(crate) asked: Asked,
    pub(crate) state: State,
    pub(crate) registers: Registers,
    /// Registers that some frame needs as they are.
    pub(crate) kept: Vec<usize>,
    has_tables: bool,
    back: Return,
    addresses: Vec<u64>,
    pointers: Vec<u64>,
    plans: Vec<Plan>,
    /// Code that calls itself: where it returns to.
    again: Vec<(u64, Rule)>,
}

impl<'w> Stack<'w> {
    /// `None`: the world has no room for it.
    pub(crate) fn make(world: &'w mut World, rng: &'w mut Rng, asked: Asked) -> Option<Truth> {
        let mut registers = [0; 21];
        registers.fill_with(|| rng.u64(1..));
        let bottom = if asked.compat {
            0xff00_0000
        } else {
            0x7ffd_0000_0000
        };
        let sp = bottom + rng.u64(0..1 << 12) * if asked.compat { 4 } else { 8 };
        let exact = asked.outside || rng.bool();
        let kept = if exact { vec![] } else { vec![at::CX] };
        let state = State {
            sp,
            bp: None,
            bx: None,
            exact,
            leaf: true,
            after_call: false,
        };
        let mut stack = Self {
            world,
            rng,
            asked,
            state,
            registers,
            kept,
            has_tables: false,
            back: Return::Here,
            addresses: Vec::new(),
            pointers: Vec::new(),
            plans: Vec::new(),
            again: Vec::new(),
        };
        let bp = stack.draw_bp(sp, asked.depth == 1);
        stack.state.bp = Some(bp);
        stack.registers[at::BP] = bp;
        stack.registers[at::SP] = sp;
        stack.registers[at::CS] = stack.rng.u64(..) << 16 | if asked.compat { 0x23 } else { 0x33 };
        stack.registers[at::ORIG_AX] = match stack.rng.bool() {
            true if exact => u64::MAX,
            _ => stack.rng.u64(0..400),
        };
        stack.registers[at::IP] = 0;
        let end = stack.frames()?;
        let from = [at::IP, at::SP, at::BP].map(|it| stack.registers[it]);
        Some(Truth {
            registers: stack.registers,
            from,
            addresses: stack.addresses,
            pointers: stack.pointers,
            end,
            plans: stack.plans,
        })
    }

    /// A frame pointer for the caller, whose stack begins at `cfa`: mostly one that may be followed.
    pub(crate) fn draw_bp(&mut self, cfa: u64, is_last: bool) -> u64 {
        let word = if self.asked.compat { 4 } else { 8 };
        let must_fit = !self.asked.by_tables && !is_last;
        match self.rng.u32(0..12) {
            0 if !must_fit => 0,
            1 if !must_fit => cfa - word,
            2 if !must_fit => cfa + 1 + self.rng.u64(0..3),
            3 if !must_fit && !self.asked.compat => self.rng.u64(..) & !7,
            4 => cfa,
            5 => cfa + 4 * self.rng.u64(0..9),
            _ => cfa + word * self.rng.u64(0..9),
        }
    }

    fn frames(&mut self) -> Option<u8> {
        for depth in 1..=MOST_DEPTH {
            let is_last = depth == self.asked.depth;
            let next_is_last = depth + 1 == self.asked.depth;
            let plan = self.draw_step(is_last, next_is_last)?;
            if let Some(end) = plan.end {
                return Some(end);
            }
            self.back = plan.back;
            self.state = plan.next;
        }
        self.deliver(1);
        Some(DEPTH)
    }

    /// One that works out, its code placed and its words written.
    fn draw_step(&mut self, is_last: bool, next_is_last: bool) -> Option<Plan> {
        for _ in 0..60 {
            let drawn = if is_last {
                self.draw_end()
            } else {
                self.draw_on(next_is_last)
            };
            let Some(mut plan) = drawn else { continue };
            let Some(ip) = self.place(&plan) else {
                continue;
            };
            for (at, bytes) in &plan.reads {
                self.world.memory.take(*at, *bytes);
            }
            for (at, bytes) in &plan.writes {
                self.world.memory.write(*at, bytes);
            }
            if let Some(hole) = plan.hole {
                self.world.memory.lose(hole);
            }
            for (register, value) in &plan.registers {
                self.registers[*register] = *value;
                self.kept.push(*register);
            }
            let is_rule = plan
                .rule
                .is_some_and(|rule| matches!(rule.cfa, unwind::Cfa::Sp | unwind::Cfa::Bp));
            if is_rule && !self.state.exact && plan.end.is_none() {
                self.again.push((ip, plan.rule.unwrap_or_default()));
            }
            let pc = ip - u64::from(!self.state.exact);
            self.deliver(ip);
            self.pointers.push(self.state.sp);
            self.addresses.push(if plan.is_signal() { ip } else { pc });
            self.has_tables |=
                self.asked.by_tables && (!self.asked.unlisted || self.world.has_table(pc));
            if plan.is_outermost {
                plan.end = Some(self.outermost());
            }
            self.plans.push(plan.clone());
            return Some(plan);
        }
        None
    }

    /// A frame pointer of 0 is a root's, but not of code that may keep none.
    fn outermost(&self) -> u8 {
        let is_unknown = self.asked.mode == AUTO && !self.has_tables;
        if is_unknown || self.state.leaf {
            NO_TABLE
        } else {
            ROOT
        }
    }

    fn place(&mut self, plan: &Plan) -> Option<u64> {
        if let Some(ip) = plan.ip {
            return Some(ip);
        }
        if self.asked.compat || !self.asked.by_tables {
            let bits = if self.asked.compat { 32 } else { 47 };
            let any = self.rng.u64(1..1 << bits);
            // Rules that are not to be asked.
            let wanted = Wanted {
                rule: Some(Rule::END),
                exact: self.state.exact,
                ..Wanted::default()
            };
            let is_ruled = !self.asked.compat && self.rng.bool();
            let placed = is_ruled.then(|| self.world.place(self.rng, &wanted));
            return Some(placed.flatten().unwrap_or(any));
        }
        let mut before = plan.before.clone();
        if self.state.after_call {
            let call = call(self.rng);
            before = [vec![0x90; 8 - call.len()], call].concat();
        }
        let wanted = Wanted {
            rule: plan.rule,
            exact: self.state.exact,
            before,
            code: plan.code.clone(),
            low: plan.low,
            module: None,
        };
        self.world.place(self.rng, &wanted)
    }

    fn deliver(&mut self, ip: u64) {
        match self.back {
            Return::Here => {
                self.registers[at::IP] = ip;
                // An interrupt may come where a system call has just returned to.
                let returned = self.registers[at::ORIG_AX] == u64::MAX
                    && !self.kept.contains(&at::CX)
                    && self.rng.bool();
                if !self.state.exact || returned {
                    self.registers[at::CX] = ip;
                }
            }
            Return::Word(at) => self.world.memory.write_word(at, ip),
            Return::Half(at) => self.world.memory.write(at, &(ip as u32).to_le_bytes()),
            Return::Register(register) => self.registers[register] = ip,
        }
    }

    /// A frame with a caller.
    fn draw_on(&mut self, next_is_last: bool) -> Option<Plan> {
        if !self.asked.by_tables {
            let mut plan = self.by_frame_pointer(next_is_last)?;
            // It is not looked at.
            plan.code = if self.rng.bool() { vec![0xc3] } else { vec![] };
            return Some(plan);
        }
        let may_repeat = !self.state.exact && !self.state.after_call && !self.again.is_empty();
        // Deep stacks are those of code that calls itself.
        if may_repeat && (self.asked.depth > 40 || self.rng.u32(0..6) == 0) {
            let (ip, rule) = self.again[self.rng.usize(0..self.again.len())];
            return Some(Plan {
                ip: Some(ip),
                ..self.by_rule(rule)?
            });
        }
        match self.rng.u32(0..10) {
            0 | 1 if self.asked.mode == AUTO => self.by_frame_pointer(next_is_last),
            2 | 3 if self.asked.mode == AUTO => self.by_code(),
            4 => self.by_signal(),
            _ => {
                let rule = self.draw_rule();
                self.by_rule(rule)
            }
        }
    }

    /// A frame that is known by its instructions, and by the call before the place that they return to.
    fn by_code(&mut self) -> Option<Plan> {
        let form = Form::drawn(self.rng);
        if form.exact && !self.state.exact {
            return None;
        }
        let mut plan = Plan::on(self.state);
        let cfa = self.state.sp + form.exit;
        fit(&mut plan.reads, cfa - 8, 8)?;
        if form.saves_bp {
            let bp = self.draw_bp(cfa, false);
            plan.write(cfa - 16, bp)?;
            plan.next.bp = Some(bp);
        }
        plan.next.sp = cfa;
        plan.next.bx = None;
        plan.next.after_call = true;
        plan.back = Return::Word(cfa - 8);
        plan.before = form.before;
        plan.code = form.code;
        plan.settled(&self.world.memory)
    }
}
