//! The workloads' command lines: `--name VALUE` and `--name`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::str::FromStr;

/// A parsed command line. Anything wrong with it ends the program with status 2.
pub struct Flags {
    usage: &'static str,
    given: BTreeMap<String, Vec<OsString>>,
}

impl Flags {
    /// Reads the program's arguments. Which flags there are its usage says: one with a word in capitals behind it takes a value and may
    /// repeat.
    #[must_use]
    pub fn of_program(usage: &'static str) -> Self {
        Self::parse(usage, std::env::args_os().skip(1)).unwrap_or_else(|problem| {
            eprintln!("{problem}\nusage: {usage}");
            std::process::exit(2)
        })
    }

    fn parse(
        usage: &'static str,
        mut args: impl Iterator<Item = OsString>,
    ) -> Result<Self, String> {
        let mut given: BTreeMap<String, Vec<OsString>> = BTreeMap::new();
        while let Some(arg) = args.next() {
            let name = arg.to_string_lossy().into_owned();
            let Some(takes_value) = takes_value(usage, &name) else {
                return Err(format!("unknown argument {name:?}"));
            };
            let values = given.entry(name.clone()).or_default();
            if takes_value {
                values.push(args.next().ok_or_else(|| format!("{name} needs a value"))?);
            }
        }
        Ok(Self { usage, given })
    }

    /// Whether the flag was given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Every value of a flag, as raw as the shell passed it.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &OsStr> {
        self.given
            .get(name)
            .into_iter()
            .flatten()
            .map(OsString::as_os_str)
    }

    /// The last value of a flag.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<&OsStr> {
        self.all(name).last()
    }

    /// The last value of a flag as a number.
    #[must_use]
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        let text = self.last(name)?.to_string_lossy();
        Some(
            text.parse()
                .unwrap_or_else(|_| self.reject(&format!("{name}: bad number {text:?}"))),
        )
    }

    /// Ends the program with status 2 and the usage.
    pub fn reject(&self, problem: &str) -> ! {
        eprintln!("{problem}\nusage: {}", self.usage);
        std::process::exit(2)
    }
}

/// A flag's name in the usage.
fn takes_value(usage: &str, name: &str) -> Option<bool> {
    let mut words = usage.split_whitespace();
    words.find(|word| name.starts_with("--") && word.trim_matches(['[', ']']) == name)?;
    let next = words.next().unwrap_or_default();
    Some(next.starts_with(|c: char| c.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Flags, String> {
        let usage = "x [--loud] [--count N]";
        Flags::parse(usage, args.iter().map(OsString::from))
    }

    #[test]
    fn values_repeat_and_the_last_wins() {
        let flags = parse(&["--count", "3", "--loud", "--count", "23"]).unwrap();
        assert_eq!(flags.number::<u64>("--count"), Some(23));
        assert_eq!(flags.all("--count").count(), 2);
        assert!(flags.has("--loud"));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(
            parse(&["--cuont"]).err().unwrap(),
            "unknown argument \"--cuont\""
        );
        assert_eq!(parse(&["--count"]).err().unwrap(), "--count needs a value");
    }
}
