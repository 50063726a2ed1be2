//! Arguments as tests write them.

use std::ffi::{OsStr, OsString};

/// Words of a command line: one text, split at blanks, or word by word where one has blanks in it.
pub(crate) trait Args {
    fn words(&self) -> Vec<OsString>;
}

impl Args for &str {
    fn words(&self) -> Vec<OsString> {
        self.split_whitespace().map(OsString::from).collect()
    }
}

impl Args for String {
    fn words(&self) -> Vec<OsString> {
        self.as_str().words()
    }
}

impl<S: AsRef<OsStr>> Args for &[S] {
    fn words(&self) -> Vec<OsString> {
        self.iter().map(|word| word.as_ref().to_owned()).collect()
    }
}

impl<S: AsRef<OsStr>, const N: usize> Args for [S; N] {
    fn words(&self) -> Vec<OsString> {
        self.as_slice().words()
    }
}

impl<S: AsRef<OsStr>> Args for Vec<S> {
    fn words(&self) -> Vec<OsString> {
        self.as_slice().words()
    }
}

impl<A: Args> Args for &A {
    fn words(&self) -> Vec<OsString> {
        (*self).words()
    }
}
