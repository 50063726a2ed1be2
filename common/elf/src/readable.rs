//! Names of functions as programmers write them: with or without parameters, and the types that a template is for.

/// Looks whether a function's whole name is the programmer's `name`.
pub(crate) fn is_called(whole: &str, name: &str) -> bool {
    let plain = behind_type(before_last(whole, '(', ')'));
    let without_types = before_last(plain, '<', '>');
    // Types of Rust's functions are behind colons.
    let without_types = without_types.strip_suffix("::").unwrap_or(without_types);
    [whole, plain, without_types].contains(&name)
}

/// The text before the last pair of brackets, if nothing but a word of C++ follows it.
fn before_last(name: &str, open: char, close: char) -> &str {
    let qualifiers = [" const", " volatile", " &&", " &"];
    let cut = |name, word| str::strip_suffix(name, word).unwrap_or(name);
    let end = qualifiers.into_iter().fold(name, cut);
    if !end.ends_with(close) {
        return name;
    }
    let mut depth = 0;
    for (at, c) in end.char_indices().rev() {
        depth += i32::from(c == close) - i32::from(c == open);
        if depth == 0 {
            return end[..at].trim_end();
        }
    }
    name
}

/// The text behind the type of what a template returns. Names of operators may have blanks.
fn behind_type(name: &str) -> &str {
    let operator = name.find("operator").unwrap_or(name.len());
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in name[..operator].char_indices() {
        match c {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' if name[..at].ends_with('-') => {}
            '>' | ')' | '}' | ']' => depth -= 1,
            ' ' if depth == 0 => begin = at + 1,
            _ => {}
        }
    }
    &name[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demangled;

    fn is_name_of(mangled: &str, name: &str) -> bool {
        is_called(&demangled(mangled), name)
    }

    #[test]
    fn names_of_cpp_are_whole_or_without_parameters() {
        let handle = "_ZN4shop6Server6handleERKNS_5OrderEi";
        let whole = "shop::Server::handle(shop::Order const&, int)";
        for name in ["shop::Server::handle", whole] {
            assert!(is_name_of(handle, name), "{name}");
        }
        for name in [
            "handle",
            "Server::handle",
            "shop::Server",
            "shop::Server::handle(int)",
            "",
        ] {
            assert!(!is_name_of(handle, name), "{name}");
        }
        for (mangled, name) in [
            ("_ZNK4shop6Server4sizeEv", "shop::Server::size"),
            ("_ZN4shop4LessclEii", "shop::Less::operator()"),
            ("_ZN4shop5PricecvmEv", "shop::Price::operator unsigned long"),
            ("_Znwm", "operator new"),
            // The type of what a template returns stands before its name.
            ("_ZN4shop3sumImEET_PKS1_", "shop::sum<unsigned long>"),
            ("_ZN4shop3sumImEET_PKS1_", "shop::sum"),
        ] {
            assert!(is_name_of(mangled, name), "{name}: {}", demangled(mangled));
        }
        assert!(!is_name_of("_ZN4shop5PricecvmEv", "long"));
        // A part of a function is no function.
        let part = "_ZN4shop6Server6handleERKNS_5OrderEi.cold";
        assert!(
            !is_name_of(part, "shop::Server::handle"),
            "{}",
            demangled(part)
        );
    }

    #[test]
    fn names_of_rust_go_without_types() {
        for (mangled, name) in [
            ("_RINvCs1234_4shop3summE", "shop::sum::<u32>"),
            ("_RINvCs1234_4shop3summE", "shop::sum"),
            ("_ZN4shop3sum17h0123456789abcdefE", "shop::sum"),
        ] {
            assert!(is_name_of(mangled, name), "{name}: {}", demangled(mangled));
        }
    }
}
