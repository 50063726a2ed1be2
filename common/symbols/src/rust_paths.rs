//! Modules of Rust functions, from the files that they are in.
//!
//! Debug information of lines alone (`debug = "line-tables-only"`) has the bare names of functions that were inlined: `lock`, of which
//! nobody can tell whose it is. The standard library and crates from a registry are compiled from paths that name the crate and its
//! modules.

/// `std::sync::poison::mutex::lock` for `lock` of `/rustc/HASH/library/std/src/sync/poison/mutex.rs`; `None`: the name has its
/// modules, or the file is another's.
pub(crate) fn qualified(name: &str, file: &str) -> Option<String> {
    if !is_bare(name) {
        return None;
    }
    let (of_crate, modules) = library(file).or_else(|| package(file))?;
    let modules = modules.strip_suffix(".rs")?;
    let mut parts: Vec<&str> = modules.split('/').collect();
    match parts[..] {
        // A program beside others of its package is a crate of its own.
        ["bin", ..] => return None,
        ["lib" | "main"] | [.., "mod"] => {
            parts.pop();
        }
        _ => {}
    }
    let all = [of_crate.as_str()].into_iter().chain(parts).chain([name]);
    Some(all.collect::<Vec<_>>().join("::"))
}

/// Looks whether a function's name, whatever types it is of, has no modules.
pub(crate) fn is_bare(name: &str) -> bool {
    let own = name.split('<').next().unwrap_or(name);
    !own.is_empty() && !own.contains("::")
}

/// The crate and the rest of the path, of a file of the standard library: as its builders have it, or as `rust-src` installs it.
fn library(file: &str) -> Option<(String, &str)> {
    let at = match file.strip_prefix("/rustc/") {
        Some(rest) => rest.split_once('/')?.1.strip_prefix("library/")?,
        None => file.split_once("/rustlib/src/rust/library/")?.1,
    };
    let (of_crate, modules) = at.split_once("/src/")?;
    (!of_crate.contains('/')).then(|| (of_crate.to_owned(), modules))
}

/// The same of a package that cargo fetched: `registry/src/INDEX/NAME-VERSION/src/…`, and where the standard library was built
/// `/rust/deps/NAME-VERSION/src/…`.
fn package(file: &str) -> Option<(String, &str)> {
    let fetched = || file.split_once("/registry/src/")?.1.split_once('/');
    let rest = match file.strip_prefix("/rust/deps/") {
        Some(rest) => rest,
        None => fetched()?.1,
    };
    let (package, modules) = rest.split_once("/src/")?;
    // A name may have numbers, too; a version has a dot behind its first.
    let is_version = |rest: &str| {
        let after = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        after.len() < rest.len() && after.starts_with('.')
    };
    let mut dashes = package.match_indices('-').map(|(at, _)| at);
    let dash = dashes.find(|at| is_version(&package[at + 1..]))?;
    let name = &package[..dash];
    (!name.is_empty() && !name.contains('/')).then(|| (name.replace('-', "_"), modules))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STD: &str = "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library";

    #[test]
    fn a_bare_name_gets_its_files_modules() {
        let of = |name: &str, file: &str| qualified(name, file).expect("a path");
        assert_eq!(
            of("lock", &format!("{STD}/std/src/sync/poison/mutex.rs")),
            "std::sync::poison::mutex::lock"
        );
        assert_eq!(
            of("call_once<F, T>", &format!("{STD}/core/src/ops/mod.rs")),
            "core::ops::call_once<F, T>"
        );
        assert_eq!(
            of("{closure#1}<a::b, ()>", &format!("{STD}/alloc/src/lib.rs")),
            "alloc::{closure#1}<a::b, ()>"
        );
        let installed = "/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library";
        assert_eq!(
            of("park", &format!("{installed}/std/src/thread/mod.rs")),
            "std::thread::park"
        );
        assert_eq!(
            of("find", "/rust/deps/hashbrown-0.15.4/src/raw/mod.rs"),
            "hashbrown::raw::find"
        );
        let crates = "/home/me/.cargo/registry/src/index.example.org-1949cf8c6b5b557f";
        assert_eq!(
            of("lock", &format!("{crates}/lock_api-0.4.14/src/mutex.rs")),
            "lock_api::mutex::lock"
        );
        assert_eq!(
            of("run", &format!("{crates}/fd-find-9.0.0/src/main.rs")),
            "fd_find::run"
        );
        assert_eq!(
            of(
                "park",
                &format!("{crates}/parking-lot-2-core-1.0.0-rc.1/src/lib.rs")
            ),
            "parking_lot_2_core::park"
        );
    }

    #[test]
    fn whole_names_and_other_files_are_left_alone() {
        for (name, file) in [
            ("std::sync::Mutex<T>::lock", "/rustc/a/library/std/src/a.rs"),
            (
                "<T as core::any::Any>::type_id",
                "/rustc/a/library/core/src/any.rs",
            ),
            ("work", "src/main.rs"),
            ("work", "/build/app-1.0/src/main.rs"),
            ("work", "/rustc/a/compiler/rustc_log/src/lib.rs"),
            ("work", "/rustc/a/library/std/src/a.c"),
            ("work", "/a/registry/src/index/crate/src/lib.rs"),
            ("work", "/a/registry/src/index/app-1.0.0/src/bin/tool.rs"),
            ("", "/rustc/a/library/std/src/a.rs"),
        ] {
            assert_eq!(qualified(name, file), None, "{name} {file}");
        }
    }
}
