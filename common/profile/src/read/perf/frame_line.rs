//! Lines of stacks in `perf script`: a frame each.

/// A line of a stack: address, symbol with offset, module in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackLine<'a> {
    /// Its place in the process.
    pub address: u64,
    /// Function, without offset; `[unknown]`.
    pub symbol: &'a [u8],
    /// The text in the last parentheses; empty where there are none.
    pub module: &'a [u8],
}

/// Takes a line of a stack apart.
pub fn stack_line(line: &[u8]) -> Option<StackLine<'_>> {
    let (address, rest) = address(line.trim_ascii())?;
    let (symbol, module) = match rest {
        [b'(', module @ .., b')'] if parenthesis(module).is_none() => (&b"[unknown]"[..], module),
        [head @ .., b')'] => match parenthesis(head) {
            Some(at) => (&head[..at], &head[at + 2..]),
            None => (rest, &b""[..]),
        },
        _ => (rest, &b""[..]),
    };
    Some(StackLine {
        address,
        symbol: without_offset(symbol).trim_ascii(),
        module,
    })
}

/// A line of a stack without any name, as `perf script -F comm,pid,tid,ip` prints it: the address stands for one.
pub(super) fn bare_address(line: &[u8]) -> Option<StackLine<'_>> {
    let digits = line.strip_prefix(b"\t")?.trim_ascii();
    let text = str::from_utf8(digits).ok()?;
    let is_address = digits.len() <= 16 && digits.iter().all(u8::is_ascii_hexdigit);
    Some(StackLine {
        address: u64::from_str_radix(text, 16).ok().filter(|_| is_address)?,
        symbol: digits,
        module: b"",
    })
}

/// The values of hexadecimal digits; 16: it is none.
const DIGITS: [u8; 256] = {
    let mut digits = [16; 256];
    let mut at = 0;
    while at < 16 {
        digits[b"0123456789abcdef"[at] as usize] = at as u8;
        digits[b"0123456789ABCDEF"[at] as usize] = at as u8;
        at += 1;
    }
    digits
};

/// A hexadecimal number and what is behind the blanks after it.
fn address(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (end, byte) in line.iter().enumerate().take(17) {
        match DIGITS[usize::from(*byte)] {
            16 if end > 0 && byte.is_ascii_whitespace() => {
                return Some((number, line[end..].trim_ascii_start()));
            }
            16 => return None,
            digit => number = number << 4 | u64::from(digit),
        }
    }
    None
}

/// The place of the last ` (`.
fn parenthesis(text: &[u8]) -> Option<usize> {
    let mut places = memchr::memrchr_iter(b'(', text);
    places.find_map(|at| at.checked_sub(1).filter(|blank| text[*blank] == b' '))
}

/// `main+0x12` as `main`.
fn without_offset(symbol: &[u8]) -> &[u8] {
    let is_digit = |byte: &&u8| byte.is_ascii_hexdigit();
    let digits = symbol.iter().rev().take_while(is_digit).count();
    match symbol[..symbol.len() - digits].strip_suffix(b"+0x") {
        Some(name) if !name.is_empty() => name,
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_stacks() {
        // Programs have functions of their own name, and perf names BPF programs so; ours have an offset behind theirs.
        for (text, symbol) in [
            ("10 main+0x12 (/bin/main)", "main"),
            ("10 bpf_prog_1_f+0x2 (bpf_prog_1_f)", "bpf_prog_1_f"),
            ("10 lib.so+0x12+0x0 (/usr/lib/lib.so)", "lib.so+0x12"),
        ] {
            assert_eq!(
                stack_line(text.as_bytes()).unwrap().symbol,
                symbol.as_bytes()
            );
        }
        let line = stack_line(b"\t    55d5 std::vec<int> (int)+0x1f (/usr/bin/a b)").unwrap();
        let (symbol, module) = (&b"std::vec<int> (int)"[..], &b"/usr/bin/a b"[..]);
        assert_eq!((line.symbol, line.module), (symbol, module));
        assert_eq!(line.address, 0x55d5);
        let line = stack_line(b"  ffffffff81 [unknown] ([unknown])").unwrap();
        let unknown = &b"[unknown]"[..];
        assert_eq!((line.symbol, line.module), (unknown, unknown));
        let line = stack_line(b" 12 (/usr/lib/a.so)\r").unwrap();
        assert_eq!((line.symbol, line.module), (unknown, &b"/usr/lib/a.so"[..]));
        let line = stack_line(b" 12 (anonymous namespace)::f+0x1 (/a)").unwrap();
        assert_eq!(line.symbol, b"(anonymous namespace)::f");
        let bare = bare_address(b"\t        ffffffff821c7894\r").unwrap();
        let symbol = &b"ffffffff821c7894"[..];
        assert_eq!((bare.address, bare.symbol), (0xffff_ffff_821c_7894, symbol));
        for text in [
            "ffffffff821c7894",
            "\t",
            "\t+12",
            "\t12345678901234567",
            "\t12 f",
        ] {
            assert_eq!(bare_address(text.as_bytes()), None, "{text}");
        }
        for text in ["no address", "12", "12345678901234567 f (/a)", "+12 f (/a)"] {
            assert_eq!(stack_line(text.as_bytes()), None, "{text}");
        }
    }
}
