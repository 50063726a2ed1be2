//! Functions that leave sp, x29 and x30 alone from their first instruction to their last, found by their code: the kernel's vDSO has
//! no call frame information in newer kernels (Debian's 6.12), and a walk by frame pointers skips the caller of such a function.

const SP: u32 = 31;
/// paciasp, pacibsp, autiasp, autibsp: x30 is signed, or no longer.
const SIGN: [u32; 4] = [0xd503_233f, 0xd503_237f, 0xd503_23bf, 0xd503_23ff];

/// True if the code is such a function. What may only look like a write of one of them counts as one.
pub(in crate::machine) fn is_leaf(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
    !bytes.is_empty() && rest.is_empty() && words.all(leaves_frame_alone)
}

fn leaves_frame_alone(word: u32) -> bool {
    let target = word & 31;
    let is_kept = |register| !matches!(register, 29 | 30);
    if word >> 26 == 0x05 {
        // b: what looks like a register is a distance.
        return true;
    }
    if !is_kept(target) || SIGN.contains(&word) || is_call(word) {
        return false;
    }
    if word & 0x0a00_0000 == 0x0800_0000 {
        // Loads and stores: what they may write beside their first register, and sp as their base.
        let (second, base, third) = (word >> 10 & 31, word >> 5 & 31, word >> 16 & 31);
        return base != SP && [second, base, third].into_iter().all(is_kept);
    }
    target != SP || !writes_sp(word)
}

/// bl, and blr in each of its forms.
fn is_call(word: u32) -> bool {
    word >> 26 == 0x25 || word & 0xfeff_f000 == 0xd63f_0000
}

/// Additions and subtractions without flags, of a constant or an extended register, and logic with a constant: for these 31 is sp.
fn writes_sp(word: u32) -> bool {
    word & 0x3f80_0000 == 0x1100_0000
        || word & 0x3fe0_0000 == 0x0b20_0000
        || word & 0x1f80_0000 == 0x1200_0000 && word >> 29 & 3 != 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const RET: u32 = 0xd65f_03c0;

    fn is_leaf_with(word: u32) -> bool {
        let code = [0xaa00_03e1, word, RET].map(u32::to_le_bytes);
        is_leaf(code.as_flattened())
    }

    #[test]
    fn the_vdsos_functions_are_leaves() {
        // bti c; add x6, sp, w6, uxtx; ldr xzr, [x6]; isb; mrs x4, cntvct_el0; cbz; b; svc; ldar; cmp
        for word in [
            0xd503_245f,
            0x8b26_63e6,
            0xf940_00df,
            0xd503_3fdf,
            0xd53b_e044,
            0xb400_0102,
            0x17ff_fffd,
            0xd400_0001,
            0x88df_fc64,
            0xeb02_001f,
        ] {
            assert!(is_leaf_with(word), "{word:#x}");
        }
    }

    #[test]
    fn who_changes_sp_or_what_a_frame_is_made_of_is_none() {
        // sub sp, sp, #16; add sp, x29, #0; sub sp, sp, x1; and sp, x3, #~31; stp x29, x30, [sp, #-16]!; str x0, [sp, #-16]!;
        // ldp x29, x30, [sp], #16; ldr x30, [x0]; mov x29, sp; mov x30, x1; bl; blr; blraa; paciasp; ldr x1, [x29], #8
        for word in [
            0xd100_43ff,
            0x9100_03bf,
            0xcb21_63ff,
            0x927b_e87f,
            0xa9bf_7bfd,
            0xf81f_0fe0,
            0xa8c1_7bfd,
            0xf940_001e,
            0x9100_03fd,
            0xaa01_03fe,
            0x9400_0001,
            0xd63f_0020,
            0xd73f_0822,
            0xd503_233f,
            0xf840_87a1,
        ] {
            assert!(!is_leaf_with(word), "{word:#x}");
        }
        assert!(!is_leaf(&[]) && !is_leaf(&[0x1f, 0x20, 0x03]));
    }
}
