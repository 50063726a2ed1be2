//! Machine code that makes or leaves a frame, as an assembler writes it, and what it says of the frame.

use fastrand::Rng;

/// Code that runs next. Its return address is 8 bytes below rsp + `exit`.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) before: Vec<u8>,
    pub(crate) code: Vec<u8>,
    /// Bytes from rsp to behind the return address.
    pub(crate) exit: u64,
    /// rbp is below the return address.
    pub(crate) saves_bp: bool,
    /// True of an instruction that a frame is at, and not of one that it returns to.
    pub(crate) exact: bool,
}

fn form(code: Vec<u8>, exit: u64, saves_bp: bool, exact: bool) -> Form {
    Form {
        before: Vec::new(),
        code,
        exit,
        saves_bp,
        exact,
    }
}

/// `mov %rsp,%rbp`
pub(crate) const MOV_SP_TO_BP: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];
const PUSH_BP: u8 = 0x55;

fn bytes(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// A conditional jump, and perhaps a comparison before it; nothing.
fn condition(rng: &mut Rng) -> Vec<u8> {
    let compare = [0x48, 0x83, rng.u8(0xf8..=0xff), rng.u8(..)];
    let jump = [rng.u8(0x70..=0x7f), rng.u8(..)];
    match rng.u32(0..4) {
        0 => jump.to_vec(),
        1 => bytes(&[&compare, &jump]),
        2 => bytes(&[&[0x0f, rng.u8(0x80..=0x8f)], &rng.u32(..).to_le_bytes()]),
        _ => Vec::new(),
    }
}

/// `add $imm,%rsp`, of whole words; then `pop %rbp`; then `ret`.
fn epilogue(rng: &mut Rng) -> Form {
    let saves_bp = rng.bool();
    let (add, popped) = match rng.u32(0..4) {
        0 => {
            let popped = 8 * rng.u8(0..16);
            (vec![0x48, 0x83, 0xc4, popped], u64::from(popped))
        }
        // The addition takes seven of the eight bytes that are looked at.
        1 if !saves_bp => {
            let popped = 8 * rng.u32(0..1 << 12);
            (
                bytes(&[&[0x48, 0x81, 0xc4], &popped.to_le_bytes()]),
                u64::from(popped),
            )
        }
        _ => (condition(rng), 0),
    };
    let pop: &[u8] = if saves_bp { &[0x5d] } else { &[] };
    let ret = [0xc3, 0xc2][rng.usize(0..2)];
    let code = bytes(&[&add, pop, &[ret]]);
    let words = if saves_bp { 16 } else { 8 };
    // Bytes behind the eighth are not looked at.
    if code.len() > 8 {
        return form(vec![ret], 8, false, false);
    }
    form(code, popped + words, saves_bp, false)
}

/// Nothing of the frame is made, or nothing is left of it.
fn outside(rng: &mut Rng) -> Vec<u8> {
    let any = rng.u32(..).to_le_bytes();
    match rng.u32(0..6) {
        // endbr64
        0 => vec![0xf3, 0x0f, 0x1e, 0xfa],
        // cmp disp32(%r15),%rsp; ja
        1 => bytes(&[&[0x49, 0x3b, 0xa7], &any, &[0x0f, 0x87]]),
        // mov %eax,disp32(%rsp); push %rbp
        2 => bytes(&[&[0x89, 0x84, 0x24], &any, &[PUSH_BP]]),
        // mov disp8(%rcx),%rbx; testb $1,disp8(%rbx)
        3 => vec![0x48, 0x8b, 0x59, any[0], 0xf6, 0x43, any[1], 1],
        // testb $1,disp8(%rbx); jne
        4 => vec![0xf6, 0x43, any[0], 1, 0x0f, 0x85, any[1], any[2]],
        _ => {
            let prologue = bytes(&[&condition(rng), &[PUSH_BP, 0x48]]);
            if prologue.len() <= 8 {
                prologue
            } else {
                vec![PUSH_BP, 0x48, 0x89, 0xe5]
            }
        }
    }
}

/// HotSpot's functions that call nothing.
fn hotspot(rng: &mut Rng) -> Form {
    let words = 8 * rng.u8(0..16);
    let exit = u64::from(words) + 16;
    match rng.u32(0..4) {
        // sub $imm32,%rsp
        0 => form(
            vec![0x48, 0x81, 0xec, rng.u8(0..0x80), 0, 0, 0],
            8,
            false,
            true,
        ),
        // mov %rbp,disp8(%rsp); mov %rsp,%rbp
        1 => form(
            vec![0x48, 0x89, 0x6c, 0x24, words, 0x48, 0x8b, 0xec],
            exit,
            false,
            true,
        ),
        // mov %rsp,%rbp; add $imm8,%rbp
        2 => Form {
            before: vec![0x90],
            ..form(
                vec![0x48, 0x8b, 0xec, 0x48, 0x83, 0xc5, words],
                exit,
                true,
                true,
            )
        },
        // add $imm8,%rbp
        _ => form(vec![0x48, 0x83, 0xc5, words], exit, true, true),
    }
}

impl Form {
    pub(crate) fn drawn(rng: &mut Rng) -> Self {
        match rng.u32(0..4) {
            0 => epilogue(rng),
            1 => form(outside(rng), 8, false, true),
            2 => Self {
                before: vec![PUSH_BP],
                ..form(MOV_SP_TO_BP[rng.usize(0..2)].to_vec(), 16, true, true)
            },
            _ => hotspot(rng),
        }
    }
}

/// The last bytes of an instruction that calls, of every length.
pub(crate) fn call(rng: &mut Rng) -> Vec<u8> {
    let any = rng.u32(..).to_le_bytes();
    // Register 4 stands for a further byte, 5 without an offset for an address behind the instruction.
    let register = rng.u8(0..8);
    let plain = [0, 1, 2, 3, 6, 7][rng.usize(0..6)];
    let near = [0, 1, 2, 3, 5, 6, 7][rng.usize(0..7)];
    match rng.u32(0..9) {
        0 => bytes(&[&[0xe8], &any]),
        1 => vec![0xff, 0xd0 + register],
        2 => vec![0xff, 0x10 + plain],
        3 => vec![0xff, 0x14, any[0]],
        4 => vec![0xff, 0x50 + near, any[0]],
        5 => vec![0xff, 0x54, any[0], any[1]],
        6 => bytes(&[&[0xff, [0x15, 0x90 + near][rng.usize(0..2)]], &any]),
        7 => bytes(&[&[0xff, 0x94, rng.u8(..)], &any]),
        _ => bytes(&[&[0xff, 0x14, 0x25], &any]),
    }
}
