//! Rules that say what waiting in a function means: `rules.txt`, and files of the user's in front of it.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use super::class::Class;
use super::word::Word;

/// Reason for which threads wait in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// They wait for others: for a lock, the last at a barrier, input or output that another thread does.
    Trouble,
    /// They have nothing to do.
    Work,
    /// Nobody can tell by the function alone.
    Unsaid,
}

impl Role {
    fn of_word(word: &str) -> Option<Self> {
        match word {
            "contention" | "barrier" | "io" => Some(Self::Trouble),
            "work" => Some(Self::Work),
            "-" => Some(Self::Unsaid),
            _ => None,
        }
    }
}

/// A name, or the beginning of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: String,
    is_prefix: bool,
}

impl Pattern {
    fn of(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self {
                text: prefix.into(),
                is_prefix: true,
            },
            None => Self {
                text: text.into(),
                is_prefix: false,
            },
        }
    }

    fn fits(&self, name: &str) -> bool {
        match self.is_prefix {
            true => name.starts_with(&self.text),
            false => name == self.text,
        }
    }
}

/// A function, and what waiting in it means.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    function: Pattern,
    library: Option<Pattern>,
    /// The only value of the word that is waited for; `None`: any.
    value: Option<u32>,
    /// Its file or its function is of an async runtime, which `meaning.word` names: nothing is said of the wait.
    runs_tasks: bool,
    meaning: Meaning,
}

impl Rule {
    fn fits(&self, name: &str, file: Option<&str>, value: Option<u32>) -> bool {
        let in_library = match &self.library {
            None => true,
            Some(library) => file.is_some_and(|file| library.fits(file)),
        };
        let has_value = self.value.is_none() || self.value == value;
        in_library && has_value && self.function.fits(name)
    }

    fn is_of_any(&self) -> bool {
        self.function.is_prefix && (self.function.text.is_empty() || self.is_of_nameless())
    }

    /// Looks whether it is for all functions of a stripped file.
    fn is_of_nameless(&self) -> bool {
        self.function.is_prefix && self.function.text.ends_with("+0x")
    }
}

/// Meaning of waits in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub(crate) class: Class,
    /// The class as it is shown.
    pub(crate) word: &'static str,
    pub(crate) role: Role,
    /// The futex stands for the waiter and not for the lock.
    pub(crate) is_own: bool,
    /// Bytes from the lock's beginning to the futex, where the class does not tell.
    pub(crate) behind: u8,
}

impl Meaning {
    /// Looks whether a function knows better than one nearer the leaf: it has a lock of its own, or a queue of work, that is made of
    /// what is waited for there.
    fn knows_better_than(self, inner: Self) -> bool {
        let is_said = inner.role == Role::Unsaid && self.role != Role::Unsaid;
        let is_made =
            matches!(self.class, Class::Named | Class::Gil) || is_said && !self.class.is_lock();
        inner.class.is_material() && is_made
            || inner.class == Class::ParkingCore && self.class != Class::ParkingCore
    }
}

/// A mistake in a file of rules, at a line and column, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    line: usize,
    column: usize,
    what: &'static str,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.what
        )
    }
}

/// Rules in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    /// Those that only tell async runtimes.
    runtimes: Vec<Rule>,
}

/// The rules that come with the tool.
static OURS: LazyLock<Rules> = LazyLock::new(|| {
    Rules::parse(include_str!("rules.txt")).expect("a test reads the tool's own rules")
});

/// Lock functions are at the leaf: further up is who calls them.
pub(super) const MAX_FRAMES: usize = 16;
/// The role of an async runtime's functions.
const TASKS: &str = "tasks";
/// Longest word of a class of the user's own.
const LONGEST_WORD: usize = 16;

impl Rules {
    /// Reads a file's text.
    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        let mut rules = Self::default();
        for (at, line) in text.lines().enumerate() {
            let said = &line[..remark_at(line)];
            if !said.trim().is_empty() {
                let mistake = |(column, what)| Mistake {
                    line: at + 1,
                    column,
                    what,
                };
                let rule = rule(said).map_err(mistake)?;
                match rule.runs_tasks {
                    true => rules.runtimes.push(rule),
                    false => rules.rules.push(rule),
                }
            }
        }
        Ok(rules)
    }

    /// The same, with `more` behind them.
    pub(crate) fn then(mut self, more: &Self) -> Self {
        self.rules.extend_from_slice(&more.rules);
        self.runtimes.extend_from_slice(&more.runtimes);
        self
    }

    /// The tool's own.
    pub(crate) fn ours() -> &'static Self {
        &OURS
    }

    /// Meaning of a stack's functions, leaf first, each with its file, and the place of the function that says so; `None`: none is
    /// known. What is made of locks is further up than they are. `value`: of the word that is waited for, where there is one.
    pub(super) fn waited_in<'a>(
        &self,
        functions: impl Iterator<Item = (&'a str, Option<&'a str>)>,
        value: Option<u32>,
    ) -> Option<(usize, Meaning)> {
        let mut found: Option<(usize, Meaning)> = None;
        let mut is_outside = false;
        for (at, (function, file)) in functions.take(MAX_FRAMES).enumerate() {
            let rule = self.rule(function, file, value);
            // Any function of a library waits in it only if nothing else is between, and any of a stripped file if none is known to.
            let is_beyond = |rule: &Rule| rule.is_of_nameless() && found.is_some();
            let rule = rule.filter(|rule| !(rule.is_of_any() && is_outside || is_beyond(rule)));
            is_outside |= rule.is_none() && !is_libc(file);
            let Some(meaning) = rule.map(|rule| rule.meaning) else {
                continue;
            };
            if found.is_none_or(|(_, inner)| meaning.knows_better_than(inner)) {
                found = Some((at, meaning));
            }
        }
        if let Some((_, meaning)) = &mut found
            && meaning.class == Class::ParkingCore
        {
            meaning.class = Class::ParkingLot;
        }
        found
    }

    /// Class and role of a lock of a program's own, by a rule, that a stack's functions are in, leaf first; `None`: there is no such
    /// rule, or it leaves the role open.
    pub(crate) fn named<'a>(
        &self,
        functions: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Option<(&'static str, Role)> {
        let meaning = self.waited_in(functions, None).map(|(_, meaning)| meaning);
        let says =
            |meaning: &Meaning| meaning.class == Class::Named && meaning.role != Role::Unsaid;
        meaning
            .filter(says)
            .map(|meaning| (meaning.word, meaning.role))
    }

    /// The async runtime that one of the functions is of; `None`: none is known.
    pub(crate) fn runtime_of<'a>(
        &self,
        mut functions: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Option<&'static str> {
        let of_rule = |(function, file): (&str, Option<&str>)| {
            let name = without_versions(bare(function));
            let fits = |rule: &&Rule| rule.fits(&name, file.map(base), None);
            self.runtimes
                .iter()
                .find(fits)
                .map(|rule| rule.meaning.word)
        };
        functions.find_map(of_rule)
    }

    /// Functions that rules know others by, which have no names but call them.
    pub(crate) fn callees(&self) -> Vec<String> {
        let functions = self.rules.iter().map(|rule| &*rule.function.text);
        functions
            .filter_map(symbols::callee_in)
            .map(Into::into)
            .collect()
    }

    /// Looks whether a rule knows a function.
    pub(super) fn know(&self, function: &str, file: Option<&str>) -> bool {
        let rule = self.rule(function, file, None);
        rule.is_some_and(|rule| !rule.is_of_nameless())
    }

    fn rule(&self, function: &str, file: Option<&str>, value: Option<u32>) -> Option<&Rule> {
        let name = without_versions(bare(function));
        let file = file.map(base);
        self.rules.iter().find(|rule| rule.fits(&name, file, value))
    }
}

/// A name without inline namespaces, which are part of a library's version: `absl::lts_20220623::`, libc++'s `std::__1::`.
fn without_versions(name: &str) -> Cow<'_, str> {
    let mut plain = Cow::Borrowed(name);
    for inline in ["std::__1::", "std::__ndk1::"] {
        if plain.contains(inline) {
            plain = plain.replace(inline, "std::").into();
        }
    }
    while let Some(at) = plain.find("absl::lts_") {
        let from = at + "absl::".len();
        let Some(length) = plain[from..].find("::") else {
            break;
        };
        let whole = format!("{}{}", &plain[..from], &plain[from + length + 2..]);
        plain = whole.into();
    }
    plain
}

/// Bytes in front of a remark, which begins where a word would.
fn remark_at(line: &str) -> usize {
    let begins = |at: &usize| {
        at.checked_sub(1)
            .is_none_or(|at| line.as_bytes()[at].is_ascii_whitespace())
    };
    let mut marks = line.match_indices('#').map(|(at, _)| at);
    marks.find(begins).unwrap_or(line.len())
}

fn base(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

fn is_libc(file: Option<&str>) -> bool {
    let base = file.map_or("", base);
    ["libc.so", "libpthread", "ld-musl"]
        .iter()
        .any(|start| base.starts_with(start))
}

/// One line's rule; else the column, counted from 1, and what is wrong there.
fn rule(line: &str) -> Result<Rule, (usize, &'static str)> {
    let mut words = line.split_whitespace().map(|word| {
        // Both are of one line.
        let column = word.as_ptr() as usize - line.as_ptr() as usize + 1;
        (column, word)
    });
    let end = line.trim_end().len() + 1;
    let mut next = |missing| words.next().ok_or((end, missing));
    let (_, function) = next("a function is missing")?;
    let (_, library) = next("a library is missing, or '-' for any")?;
    let (class_at, class) = next("a class is missing")?;
    let (role_at, role) = next("a role is missing: contention, barrier, io, work, tasks or '-'")?;
    let runs_tasks = role == TASKS;
    // A rule of tasks tells of no wait.
    let word = (!runs_tasks).then(|| words.next()).flatten();
    let futex = match word {
        Some((column, word)) => Word::read(word).ok_or((column, Word::FORMS))?,
        None => Word::default(),
    };
    if let Some((column, _)) = words.next() {
        return Err((column, "nothing may follow"));
    }
    let known = Role::of_word(role).or(runs_tasks.then_some(Role::Unsaid));
    let role = known.ok_or((
        role_at,
        "a role is contention, barrier, io, work, tasks or '-'",
    ))?;
    let (class, word) = class_of(class).ok_or((
        class_at,
        "a class is a word of at most 16 small letters, digits and hyphens",
    ))?;
    Ok(Rule {
        function: Pattern::of(&without_versions(bare(function))),
        library: (library != "-").then(|| Pattern::of(library)),
        value: futex.value,
        runs_tasks,
        meaning: Meaning {
            class,
            word,
            role,
            is_own: futex.is_own,
            behind: futex.behind,
        },
    })
}

fn class_of(word: &str) -> Option<(Class, &'static str)> {
    if let Some(class) = Class::of_word(word) {
        return Some((class, class.word()));
    }
    let may_stand = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_word = word.starts_with(|first: char| first.is_ascii_lowercase())
        && word.len() <= LONGEST_WORD
        && word.bytes().all(may_stand);
    // Rules are read once and live as long as the tool.
    is_word.then(|| (Class::Named, &*String::leak(word.to_owned())))
}

/// Without what compilers put in front of `impl` blocks, glibc of its aliases, and C++ of a template's instance: what it returns.
pub(super) fn bare(function: &str) -> &str {
    let name = function.strip_prefix("void ").unwrap_or(function);
    let name = name.trim_start_matches(['_', '<']);
    let name = name.strip_prefix("GI_").unwrap_or(name);
    name.trim_start_matches('_')
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
