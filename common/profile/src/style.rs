//! Emphasis in tables for people. Who wants it is decided elsewhere.

use std::fmt::{self, Display, Formatter};

/// Whether text may carry terminal escape sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Text alone.
    #[default]
    Plain,
    /// Bold and dim by ANSI sequences.
    Ansi,
}

impl From<bool> for Style {
    /// `true`: colours are wanted.
    fn from(color: bool) -> Self {
        if color { Self::Ansi } else { Self::Plain }
    }
}

impl Style {
    /// Makes text stand out. The sequences have no width in a [`crate::table::Table`], but are counted by `{:<9}`.
    pub fn bold<T: Display>(self, text: T) -> Emphasis<T> {
        self.emphasis("\x1b[1m", text)
    }

    /// Makes text step back.
    pub fn dim<T: Display>(self, text: T) -> Emphasis<T> {
        self.emphasis("\x1b[2m", text)
    }

    fn emphasis<T>(self, start: &'static str, text: T) -> Emphasis<T> {
        Emphasis {
            start: (self == Self::Ansi).then_some(start),
            text,
        }
    }
}

/// Text in its emphasis, for `{}`.
#[derive(Clone, Copy, Debug)]
pub struct Emphasis<T> {
    start: Option<&'static str>,
    text: T,
}

impl<T: Display> Display for Emphasis<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.start {
            Some(start) => write!(f, "{start}{}\x1b[0m", self.text),
            None => write!(f, "{}", self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_only_where_wanted() {
        assert_eq!(Style::Plain.bold("a").to_string(), "a");
        assert_eq!(Style::from(true).bold("a").to_string(), "\x1b[1ma\x1b[0m");
        assert_eq!(Style::Ansi.dim(1).to_string(), "\x1b[2m1\x1b[0m");
    }
}
