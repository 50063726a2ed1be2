//! Uses among the modules of a crate, read from `use` and from paths that begin at the crate or above.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module by the names of those around it; the crate's root is empty.
type Module = Vec<String>;

/// The circles among modules that lie in the same one, each with those that it goes through. Code of tests does not count, nor
/// does a module that uses what it lies in.
pub(crate) fn circles(crate_root: &Path) -> Vec<String> {
    let mut modules = BTreeMap::new();
    read(crate_root, &mut Vec::new(), &mut modules);
    // Each module's children, with the neighbours that they use.
    let mut uses: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (user, text) in &modules {
        for used in paths(text).filter_map(|path| target(user, &path, &modules)) {
            let shared = user.iter().zip(&used).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (user.get(shared), used.get(shared)) {
                let inside = uses.entry(user[..shared].to_vec()).or_default();
                inside.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    let circle_through = |start: &String, edges: &BTreeMap<String, BTreeSet<String>>| {
        let mut reached = BTreeSet::new();
        let mut left: Vec<&String> = edges[start].iter().collect();
        while let Some(module) = left.pop() {
            if reached.insert(module) {
                left.extend(edges.get(module).into_iter().flatten());
            }
        }
        reached.contains(start)
    };
    uses.iter()
        .filter_map(|(around, edges)| {
            let inside: Vec<&str> = edges
                .keys()
                .filter(|module| circle_through(module, edges))
                .map(String::as_str)
                .collect();
            let around = around.join("::");
            (!inside.is_empty()).then(|| format!("{around}: {}", inside.join(", ")))
        })
        .collect()
}

/// The code of all modules below `directory`, without that of tests.
fn read(directory: &Path, around: &mut Module, modules: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        let stem = path.file_stem().expect("a name").to_string_lossy();
        let mut module = around.clone();
        if !["mod", "lib", "main"].contains(&stem.as_ref()) {
            module.push(stem.to_string());
        }
        if path.is_dir() {
            read(&path, &mut module, modules);
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && !(stem.ends_with("_tests") || stem == "tests")
        {
            let text = fs::read_to_string(&path).expect("text");
            modules.insert(module, without_tests(&text));
        }
    }
}

fn without_tests(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next());
    lines.flatten().collect::<Vec<_>>().join(" ")
}

/// Paths behind `use`, one after the other, and all others from the crate or from above.
fn paths(text: &str) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    let mut rest = String::new();
    for statement in text.split_inclusive(';') {
        let (before, after) = match statement.rsplit_once("use ") {
            Some((before, after)) if before.is_empty() || before.ends_with([' ', '}']) => {
                (before, after)
            }
            _ => (statement, ""),
        };
        rest += before;
        expand("", after.trim_end_matches(';'), &mut found);
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let others = rest.split(|c| !is_word(c)).map(str::to_owned);
    found.extend(others.filter(|path| path.starts_with("crate::") || path.starts_with("super::")));
    found.into_iter()
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn expand(before: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, inside)) = tree.split_once('{') else {
        found.push(format!(
            "{before}{}",
            tree.split(' ').next().unwrap_or_default()
        ));
        return;
    };
    let before = format!("{before}{}", head.trim());
    let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&before, &inside[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The module that a path in `user` leads to, if it is one of the crate's.
fn target(user: &Module, path: &str, modules: &BTreeMap<Module, String>) -> Option<Module> {
    let mut words = path.split("::").peekable();
    let mut module = match *words.peek()? {
        "crate" => Vec::new(),
        "self" | "super" => user.clone(),
        child => {
            let inside = [user.as_slice(), &[child.to_owned()]].concat();
            modules.contains_key(&inside).then(|| user.clone())?
        }
    };
    for word in words {
        match word {
            "crate" | "self" => {}
            "super" => drop(module.pop()),
            _ => {
                module.push(word.to_owned());
                if !modules.contains_key(&module) {
                    module.pop();
                    break;
                }
            }
        }
    }
    (module != *user).then_some(module)
}
