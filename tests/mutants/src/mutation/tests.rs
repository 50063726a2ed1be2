use super::*;

/// Kinds, and what stands instead of what.
fn all(file: &str, text: &str) -> Vec<(Kind, String, String)> {
    let mutations = of(Path::new(file), text).expect("a grammar");
    let what = mutations
        .into_iter()
        .map(|it| (it.kind, text[it.at.clone()].to_owned(), it.instead));
    what.collect()
}

fn assert_all(file: &str, text: &str, expected: &[(Kind, &str, &str)]) {
    let found = all(file, text);
    let found: Vec<(Kind, &str, &str)> = found
        .iter()
        .map(|(kind, old, new)| (*kind, old.as_str(), new.as_str()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn c_has_all_kinds_of_mistakes() {
    assert_all(
        "a.bpf.c",
        "static __always_inline void f(int a)\n{\n\tif (a < 2)\n\t\treturn;\n\tsum += a;\n\tg(a, b);\n\tbpf_spin_unlock(&lock);\n}\n",
        &[
            (Kind::ForgottenFilter, "(a < 2)", "(0)"),
            (Kind::NegatedCondition, "(a < 2)", "(!((a < 2)))"),
            (Kind::OffByOne, "<", "<="),
            (Kind::WrongComparison, "<", ">"),
            (Kind::OffByOne, "2", "(2 + 1)"),
            (Kind::DroppedUpdate, "sum += a;", ";"),
            (Kind::DoubledUpdate, "sum += a;", "sum += a; sum += a;"),
            (Kind::PlusForMinus, "+=", "-="),
            (Kind::SwappedArguments, "a, b", "b, a"),
            (Kind::LostUnlock, "bpf_spin_unlock(&lock)", "(void)0"),
        ],
    );
}

#[test]
fn rust_has_them_but_for_tests_and_tests_have_none() {
    assert_all(
        "a.rs",
        "const A: u8 = 1 + 1;\nfn f() { if a && b { self.sum += 1; } c.iter().filter(d).sum() }\n\
         #[cfg(test)]\nmod tests { fn g() { a += 1; } }\n",
        &[
            (Kind::ForgottenFilter, "a && b", "true"),
            (Kind::ForgottenFilter, "a && b", "a"),
            (Kind::ForgottenFilter, "a && b", "b"),
            (Kind::NegatedCondition, "a && b", "!(a && b)"),
            (Kind::DroppedUpdate, "self.sum += 1;", ";"),
            (
                Kind::DoubledUpdate,
                "self.sum += 1;",
                "self.sum += 1; self.sum += 1;",
            ),
            (Kind::PlusForMinus, "+=", "-="),
            (Kind::ForgottenFilter, "c.iter().filter(d)", "c.iter()"),
        ],
    );
}

#[test]
fn macros_that_unlock_can_forget_it() {
    assert_all(
        "a.bpf.h",
        "#define LEAVE(at)  \\\n\tbpf_spin_unlock(&(at)->lock); \\\n\tnext()\n",
        &[(Kind::LostUnlock, "bpf_spin_unlock(&(at)->lock)", "(void)0")],
    );
}
