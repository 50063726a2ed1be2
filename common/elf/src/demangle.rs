//! Names as the programmer wrote them, if they are mangled ones.

use std::fmt;

use crate::MAX_NAME;

/// The name of a Rust or C++ function; any other as it is.
///
/// Only what begins like a mangled name is taken for one: a C function called `f` is no `float`. A name may refer to its
/// own parts, and so become longer with every reference: one that gets longer than a name may be stays mangled.
pub fn demangled(name: &str) -> String {
    demangled_at_cost(name).0
}

/// The same, and how many bytes were read and written for it.
pub(crate) fn demangled_at_cost(name: &str) -> (String, usize) {
    let mut rust = Bounded(String::new());
    let is_rust = (name.starts_with("_R") || name.starts_with("_ZN") || name.starts_with("ZN"))
        && rustc_demangle::try_demangle(name)
            .is_ok_and(|whole| fmt::Write::write_fmt(&mut rust, format_args!("{whole:#}")).is_ok());
    let cost = name.len() + rust.0.len();
    if is_rust {
        return (rust.0, cost);
    }
    let mut cpp = Bounded(String::new());
    let options = cpp_demangle::DemangleOptions::default();
    let is_cpp = (name.starts_with("_Z") || name.starts_with("_GLOBAL_"))
        && cpp_demangle::Symbol::new(name)
            .is_ok_and(|whole| whole.structured_demangle(&mut cpp, &options).is_ok());
    let cost = cost + cpp.0.len();
    (if is_cpp { cpp.0 } else { name.to_owned() }, cost)
}

/// Looks whether a name begins like those that are mangled.
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// Takes no more than a name may have.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_only() {
        for (mangled, expected) in [
            ("f", "f"),
            ("i", "i"),
            ("main", "main"),
            ("_start", "_start"),
            ("_Z3sumPKci", "sum(char const*, int)"),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
            ),
            ("_RNvCs1234_7mycrate4main", "mycrate::main"),
            (
                "_ZN9rustlocks9STD_MUTEX17hab9c72ce113304c7E",
                "rustlocks::STD_MUTEX",
            ),
            ("_ZN3app5cacheE", "app::cache"),
            ("w", "w"),
            ("_Z", "_Z"),
            ("_ZNK", "_ZNK"),
        ] {
            assert_eq!(demangled(mangled), expected, "{mangled}");
        }
    }

    #[test]
    fn a_name_that_grows_without_end_stays_mangled() {
        let mut name = "_Z1fSt4pairIiiE".to_owned();
        let mut last = "S_".to_owned();
        for depth in 0..30 {
            name += &format!("St4pairI{last}{last}E");
            last = match depth {
                0..10 => format!("S{depth}_"),
                _ => format!("S{}_", char::from(b'A' + (depth - 10))),
            };
        }
        let began = std::time::Instant::now();
        let found = demangled(&name);
        assert!(found.len() <= MAX_NAME);
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }
}
