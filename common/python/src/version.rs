//! Versions of the interpreter.

use std::fmt;

/// A version of CPython 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The 11 of 3.11.2.
    pub minor: u8,
    /// The 2 of 3.11.2; `None`: only the file's name told the version.
    pub micro: Option<u8>,
}

impl Version {
    /// Out of `Py_Version` or the like; `None`: no version of Python 3.
    pub fn of_word(word: u64) -> Option<Self> {
        (word >> 24 == 3).then_some(Self {
            minor: (word >> 16) as u8,
            micro: Some((word >> 8) as u8),
        })
    }

    /// Out of the last part of a path, such as `python3.9` or `libpython3.9.so.1.0`.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        const MARK: &[u8] = b"python3.";
        let at = name.windows(MARK.len()).position(|part| part == MARK)?;
        let behind = &name[at + MARK.len()..];
        let digits = behind.iter().take_while(|byte| byte.is_ascii_digit());
        let digits = &behind[..digits.count()];
        let minor = std::str::from_utf8(digits).ok()?.parse().ok()?;
        Some(Self { minor, micro: None })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}", self.minor)?;
        match self.micro {
            Some(micro) => write!(f, ".{micro}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_words_and_names() {
        let known = Version::of_word(0x030d_05f0).expect("a version");
        assert_eq!(known.to_string(), "3.13.5");
        assert_eq!(Version::of_word(0x0207_12f0), None);
        assert_eq!(Version::of_word(u64::MAX), None);
        for (name, minor) in [
            ("python3.9", 9),
            ("libpython3.10.so.1.0", 10),
            ("libpython3.8m.so", 8),
        ] {
            let version = Version::of_name(name.as_bytes());
            assert_eq!(version.map(|version| version.minor), Some(minor), "{name}");
        }
        for name in ["python3", "python3.", "python3.999", "python2.7", ""] {
            assert_eq!(Version::of_name(name.as_bytes()), None, "{name}");
        }
    }
}
