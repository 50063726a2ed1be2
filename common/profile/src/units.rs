//! Numbers for people.

/// A time in the unit that reads best: `789 us`, `45.6 ms`, `1.23 s`.
pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", three_digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(value / 1e6)),
        _ => format!("{} s", three_digits(value / 1e9)),
    }
}

/// Three significant digits, or all before the point: `1.23`, `45.6`, `789`, `1234`.
pub fn three_digits(value: f64) -> String {
    // 9.995 would print as 10.00.
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// A count with separators: `48,211`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_chosen_to_read_well() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_500), "1.50 us");
        assert_eq!(duration(45_600_000), "45.6 ms");
        assert_eq!(duration(1_234_000_000), "1.23 s");
        assert_eq!(duration(123_400_000_000), "123 s");
        assert_eq!(duration(9_999_000), "10.0 ms");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(123), "123");
    }
}
