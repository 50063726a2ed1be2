//! The kernel side compiles for arm64 too. It is not run; `make cross` builds whole programs.

mod compile;

/// `EM_BPF` of the ELF header, little-endian.
const MACHINE: [u8; 2] = 247u16.to_le_bytes();

#[test]
fn the_kernel_side_compiles_for_arm64() {
    for (name, object) in compile::objects("arm64") {
        assert_eq!(object[18..20], MACHINE, "{name}");
    }
}
