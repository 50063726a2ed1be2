//! Numbers for people.

/// A value in its unit, see [`crate::model::ValueType`].
pub fn value(value: u64, unit: &str) -> String {
    match unit {
        "ns" => duration(value),
        "bytes" => bytes(value),
        _ => count(value),
    }
}

/// An amount of memory in powers of 1024: `512 B`, `1.50 KiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.5 would print as 1024.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// A time in the unit that reads best: `789 us`, `45.6 ms`, `1.23 s`.
pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    // A value that would print as 1000 of one unit is 1.00 of the next.
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} us", three_digits(value / 1e3)),
        999_500..999_500_000 => format!("{} ms", three_digits(value / 1e6)),
        _ => format!("{} s", three_digits(value / 1e9)),
    }
}

/// Time that adds up over threads: `1.41 thread-seconds`, `911 us of thread time`.
pub fn thread_time(ns: u64) -> String {
    match ns {
        ..1_000_000_000 => format!("{} of thread time", duration(ns)),
        _ => format!("{} thread-seconds", three_digits(ns as f64 / 1e9)),
    }
}

/// Three significant digits, or all before the point: `1.23`, `45.6`, `789`, `1,234`.
pub fn three_digits(value: f64) -> String {
    // 9.995 would print as 10.00.
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        value if value < 999.5 => 0,
        _ => return count(value.round() as u64),
    };
    format!("{value:.digits$}")
}

/// A count of things, named in the plural: `48,211 waits: table full`, `1 wait: table full`.
pub fn counted(n: u64, plural: &str) -> String {
    if n == 1 {
        let kinds: Vec<String> = plural.split(" and ").map(singular).collect();
        return format!("1 {}", kinds.join(" or "));
    }
    format!("{} {plural}", count(n))
}

/// The first word that ends in s is the plural.
fn singular(phrase: &str) -> String {
    let end = |word: &str| {
        let word = word.trim_end_matches(':');
        let ending = ["ches", "shes", "sses"]
            .iter()
            .any(|ending| word.ends_with(ending));
        (word.ends_with('s')).then_some(if ending { "es" } else { "s" })
    };
    let mut is_done = false;
    let words = phrase.split(' ').map(|word| match end(word) {
        Some(end) if !is_done => {
            is_done = true;
            let stem = word.trim_end_matches(':');
            format!("{}{}", &stem[..stem.len() - end.len()], &word[stem.len()..])
        }
        _ => word.to_owned(),
    });
    words.collect::<Vec<String>>().join(" ")
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
        assert_eq!(duration(12_345_400_000_000), "12,345 s");
        assert_eq!(thread_time(1_234_000_000_000), "1,234 thread-seconds");
        assert_eq!(duration(9_999_000), "10.0 ms");
        assert_eq!(duration(999_499), "999 us");
        assert_eq!(duration(999_500), "1.00 ms");
        assert_eq!(duration(999_999_999), "1.00 s");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(1 << 20), "1.00 MiB");
        assert_eq!(bytes((1 << 20) - 1), "1.00 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(value(5, "bytes"), "5 B");
        assert_eq!(value(5000, "count"), "5,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(123), "123");
    }

    #[test]
    fn one_is_no_plural() {
        for (plural, singular) in [
            ("stacks", "1 stack"),
            ("waits: table full", "1 wait: table full"),
            ("switches not seen", "1 switch not seen"),
            ("stacks cut at 127 frames", "1 stack cut at 127 frames"),
            ("exited processes forgotten", "1 exited process forgotten"),
            ("switches and wakeups", "1 switch or wakeup"),
        ] {
            assert_eq!(counted(1, plural), singular);
            assert_eq!(counted(0, plural), format!("0 {plural}"));
            assert_eq!(counted(1009, plural), format!("1,009 {plural}"));
        }
    }
}
