//! Code that makes or leaves its frame is recognised, and nothing else is.

use fastrand::Rng;
use unwind::{Architecture, Frame, Rule};

use crate::forms::{Form, call};
use crate::memory::{Memory, PAGE};
use crate::unwinder::Unwinder;

const CODE: u64 = 0x40_0000;
const STACK: u64 = 0x7ffd_0000;
/// An instruction behind a call.
const CALLER: u64 = 0x60_0100;

impl Unwinder {
    /// Bytes from rsp to behind the return address, 1 more if rbp is below it; 0: unknown.
    fn find_exit(&self, ip: u64, exact: bool) -> u32 {
        self.host
            .ask::<u32>("host_find_exit", (ip, STACK, u32::from(exact)))
    }
}

/// The code in its memory, often up to the end of a page behind which there is none; its address.
fn lay_out(memory: &mut Memory, rng: &mut Rng, form: &Form, calls: &[u8]) -> u64 {
    let length = form.code.len() as u64;
    let room = if rng.bool() { 0 } else { rng.u64(0..40) };
    let ip = CODE + PAGE - length - room;
    memory.map(CODE);
    memory.write(ip, &form.code);
    memory.write(ip - form.before.len() as u64, &form.before);
    memory.write_word(CALLER - 8, 0x9090_9090_9090_9090);
    memory.write(CALLER - calls.len() as u64, calls);
    // Wherever it looks for the return address, there is one.
    let far = STACK + form.exit - 8;
    for at in (STACK..STACK + 0x200).step_by(8).chain([far, far + 8]) {
        memory.write_word(at, CALLER);
    }
    ip
}

#[test]
fn frames_in_the_making_are_recognised_by_their_code() {
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(1);
    for _ in 0..6_000 {
        let form = Form::drawn(&mut rng);
        let (exact, calls) = (form.exact || rng.bool(), call(&mut rng));
        let mut memory = Memory::default();
        let ip = lay_out(&mut memory, &mut rng, &form, &calls);
        unwinder.remember(&memory);
        let truth = form.exit as u32 + u32::from(form.saves_bp);
        assert_eq!(unwinder.find_exit(ip, exact), truth, "{form:x?} {calls:x?}");
        if form.exact {
            assert_eq!(
                unwinder.find_exit(ip, false),
                0,
                "{form:x?} where a call returns to"
            );
        }
        // Neither its code, nor the return address, nor the call before that may be missing.
        let lost = [ip, STACK + form.exit - 8, CALLER - 8][rng.usize(0..3)];
        memory.lose(lost);
        assert_eq!(
            unwinder.find_exit(ip, exact),
            0,
            "{form:x?} without {lost:#x}"
        );
    }
}

#[test]
fn return_addresses_without_a_call_before_them_are_refused() {
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(2);
    for _ in 0..3_000 {
        let form = Form::drawn(&mut rng);
        let any = [rng.u8(1..0x0f), rng.u8(1..0x0f)];
        let other = match rng.u32(0..5) {
            // jmp rel32; jmp, push and inc of a register; a call that ends elsewhere.
            0 => vec![0xe9, 1, 2, 3, 4],
            1 => vec![0xff, 0xe0 + rng.u8(0..8)],
            2 => vec![0xff, 0xf0 + rng.u8(0..8)],
            3 => vec![0xff, 0xc0 + rng.u8(0..8)],
            _ => vec![0xff, 0xd0, 0x90, any[0], any[1]],
        };
        let mut memory = Memory::default();
        let ip = lay_out(&mut memory, &mut rng, &form, &other);
        unwinder.remember(&memory);
        assert_eq!(unwinder.find_exit(ip, true), 0, "{form:x?} {other:x?}");
    }
}

/// Both walkers see the same of code in which a byte or two are changed.
#[test]
fn both_walkers_recognise_the_same_code() {
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(3);
    let mut recognised = 0;
    for _ in 0..20_000 {
        let mut form = Form::drawn(&mut rng);
        let mut calls = call(&mut rng);
        form.code.resize(8, rng.u8(..));
        for _ in 0..rng.u32(0..3) {
            let at = rng.usize(0..8);
            form.code[at] = if rng.bool() {
                form.code[at] ^ 1 << rng.u32(0..8)
            } else {
                rng.u8(..)
            };
        }
        if rng.u32(0..3) == 0 {
            let at = rng.usize(0..calls.len());
            calls[at] ^= 1 << rng.u32(0..8);
        }
        let mut memory = Memory::default();
        let ip = lay_out(&mut memory, &mut rng, &form, &calls);
        unwinder.remember(&memory);
        let exact = rng.bool();
        let frame = Frame {
            bp: None,
            exact,
            ..Frame::new(Architecture::X86_64, ip, STACK, 0)
        };
        let caller = frame.caller(Rule::UNCOVERED, |at| memory.word(at));
        let truth = caller.map_or(0, |it| (it.sp - STACK) as u32 + u32::from(it.bp.is_some()));
        recognised += u32::from(truth > 0);
        assert_eq!(
            unwinder.find_exit(ip, exact),
            truth,
            "{form:x?} {calls:x?} {exact}"
        );
    }
    assert!(recognised > 2_000, "{recognised} of 20000");
}
