//! Events of profiles in the words of people.

use crate::escape::terminal;
use crate::text::cut;

/// Columns that a name from elsewhere may take.
const LONGEST: usize = 32;

/// Events in the plural, by their name: `calls of read`, `events of kmem:kmalloc`.
pub fn plural(event: &str) -> String {
    let call = event.strip_prefix("syscalls:sys_enter_");
    let end = event.strip_prefix("syscalls:sys_exit_");
    let (what, of) = match (call, end) {
        (Some(call), _) => ("calls", call),
        (_, Some(call)) => ("returns", call),
        _ if event.contains(':') => ("events", event),
        // A function.
        _ => ("calls", event),
    };
    format!("{what} of {}", cut(&terminal(of), LONGEST))
}

/// A unit such as `count of syscalls:sys_enter_read`: `the sum of count over calls of read`; `None`: it is another one.
pub fn sum(unit: &str) -> Option<String> {
    let (weight, event) = unit.split_once(" of ")?;
    // Fields are tracepoints', and arguments functions'; another program's unit may have the word, too.
    let number = weight.strip_prefix("arg").unwrap_or_default();
    let is_argument = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    if !event.contains(':') && !is_argument {
        return None;
    }
    let weight = cut(&terminal(weight), LONGEST);
    Some(format!("the sum of {weight} over {}", plural(event)))
}

/// A profile's values in the plural, by their name and its event's.
pub(crate) fn values<'a>(name: &'a str, event: &str) -> std::borrow::Cow<'a, str> {
    match name {
        "events" if !event.is_empty() => plural(event).into(),
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_called_what_they_are() {
        for (event, said) in [
            ("syscalls:sys_enter_read", "calls of read"),
            ("syscalls:sys_exit_read", "returns of read"),
            ("kmem:kmalloc", "events of kmem:kmalloc"),
            ("malloc", "calls of malloc"),
        ] {
            assert_eq!(plural(event), said);
        }
        assert_eq!(
            sum("count of syscalls:sys_enter_read").as_deref(),
            Some("the sum of count over calls of read")
        );
        assert_eq!(sum("objects"), None);
        assert_eq!(sum("number of allocations"), None);
        assert_eq!(
            sum("arg1 of malloc").as_deref(),
            Some("the sum of arg1 over calls of malloc")
        );
        assert_eq!(values("samples", "page-faults"), "samples");
    }
}
