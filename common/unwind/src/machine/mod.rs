//! Everything that differs by architecture: by that of the file, or of the code that runs, and not by this machine's.

use gimli::{UnwindSection, Vendor};

use crate::architecture::{Architecture, Format};
use crate::convert::{Reader, Row};
use crate::frame::{End, Frame, Memory};
use crate::rule::Rule;

mod aarch64;
mod x86_64;

/// Names whose extensions of DWARF a file has.
pub(crate) fn vendor(of: Architecture) -> Vendor {
    match of {
        Architecture::X86_64 => Vendor::Default,
        Architecture::Aarch64 => Vendor::AArch64,
    }
}

/// The rule that says the same as `row`.
pub(crate) fn rule<'a, S: UnwindSection<Reader<'a>>>(
    format: Format,
    row: &Row,
    section: &S,
) -> Rule {
    match format.architecture {
        Architecture::X86_64 => x86_64::rule(row, section, format.with_bx),
        Architecture::Aarch64 => aarch64::rule(row, section),
    }
}

/// True if a row says that something was pushed before its function began: what its first row does not say.
pub(crate) fn is_behind_pushed(of: Architecture, row: &Row) -> bool {
    of == Architecture::Aarch64 && aarch64::is_behind_pushed(row)
}

/// True if the rule needs a register that others have to tell.
pub(crate) fn needs_bx(of: Architecture, rule: Rule) -> bool {
    of == Architecture::X86_64 && x86_64::needs_bx(rule)
}

/// The rule `depth` bytes below what a function finds on its stack, by Go's table; `None`: no such depth.
pub(crate) fn go_rule(of: Architecture, depth: i32) -> Option<Rule> {
    match of {
        Architecture::X86_64 => x86_64::go_rule(depth),
        Architecture::Aarch64 => Some(aarch64::go_rule(depth)),
    }
}

/// The rules of a PLT by offset; none: it is none that is known.
pub(crate) fn plt_rules(of: Architecture, bytes: &[u8]) -> Vec<(u64, Rule)> {
    match of {
        Architecture::X86_64 => x86_64::plt::rules(bytes),
        Architecture::Aarch64 => aarch64::plt::rules(bytes),
    }
}

/// Looks whether a function keeps its caller's frame, return address included, where it was when it was called, all of it.
pub(crate) fn is_leaf(of: Architecture, bytes: &[u8]) -> bool {
    match of {
        // Every function has its return address on the stack.
        Architecture::X86_64 => false,
        Architecture::Aarch64 => aarch64::leaf::is_leaf(bytes),
    }
}

/// The rule that a frame has by its code, where `rule`, its table's, says nothing.
pub(crate) fn rule_by_code(frame: &Frame, rule: Rule, memory: Memory<'_>) -> Rule {
    match frame.architecture {
        Architecture::X86_64 => x86_64::rule_by_code(frame, rule, memory),
        Architecture::Aarch64 => aarch64::rule_by_code(frame, rule, memory),
    }
}

/// The caller's frame by a rule.
pub(crate) fn caller(frame: &Frame, rule: Rule, memory: Memory<'_>) -> Result<Frame, End> {
    match frame.architecture {
        Architecture::X86_64 => x86_64::caller(frame, rule, memory),
        Architecture::Aarch64 => aarch64::caller(frame, rule, memory),
    }
}

/// The caller's frame by the frame pointer.
pub(crate) fn caller_by_frame_pointer(frame: &Frame, memory: Memory<'_>) -> Result<Frame, End> {
    match frame.architecture {
        Architecture::X86_64 => x86_64::caller_by_frame_pointer(frame, memory),
        Architecture::Aarch64 => aarch64::caller_by_frame_pointer(frame, memory),
    }
}
