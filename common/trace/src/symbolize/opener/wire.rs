//! What the tool and its opening process say to each other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of every answer.
pub(super) const ANSWER_BYTES: usize = 64;
/// Bytes of a path, by the kernel's PATH_MAX.
const MAX_PATH: usize = 4096;
/// In front of a question: how many bytes follow.
pub(super) const PREFIX: usize = 4;
/// Bytes of a question without its prefix: more devices are not avoided.
pub(super) const MAX_QUESTION: usize = 1 + 8 + 1 + 8 * MAX_AVOIDED + MAX_PATH;
const MAX_AVOIDED: usize = 16;

/// Which file; the descriptor of its root comes along, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) follow: bool,
    /// Bytes that may be copied.
    pub(super) limit: u64,
    /// Devices not to be touched.
    pub(super) avoid: Vec<u64>,
    pub(super) path: Vec<u8>,
}

impl Question {
    pub(super) fn encode(&self) -> Vec<u8> {
        let avoid = &self.avoid[..self.avoid.len().min(MAX_AVOIDED)];
        let mut out = vec![0; PREFIX];
        out.push(u8::from(self.follow));
        out.extend(self.limit.to_le_bytes());
        out.push(u8::try_from(avoid.len()).expect("cut"));
        avoid
            .iter()
            .for_each(|device| out.extend(device.to_le_bytes()));
        out.extend(&self.path[..self.path.len().min(MAX_PATH)]);
        let length = u32::try_from(out.len() - PREFIX).expect("cut");
        out[..PREFIX].copy_from_slice(&length.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&follow, rest) = bytes.split_first()?;
        let (limit, rest) = rest.split_first_chunk()?;
        let (&count, rest) = rest.split_first()?;
        let (avoid, path) = rest.split_at_checked(8 * usize::from(count))?;
        let (avoid, _) = avoid.as_chunks();
        Some(Self {
            follow: follow != 0,
            limit: u64::from_le_bytes(*limit),
            avoid: avoid
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes))
                .collect(),
            path: path.to_vec(),
        })
    }
}

/// What was known of a file when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// Seconds and ns since 1970.
    pub(crate) modified: (i64, i64),
    pub(crate) owner: u32,
    pub(crate) mode: u32,
    /// The kind of file system, as `statfs` has it.
    pub(crate) file_system: i64,
    /// What is open is a copy.
    pub(crate) copied: bool,
}

impl Facts {
    /// On the clock of files; before 1970 is 1970. `None` is no time that a clock could show: owners set what they like.
    pub(crate) fn modified_at(&self) -> Option<SystemTime> {
        let (seconds, nanoseconds) = self.modified;
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let rest = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0));
        UNIX_EPOCH.checked_add(seconds)?.checked_add(rest)
    }
}

/// One message of several to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It lies on this device, and what comes next may take for ever.
    Found(u64),
    /// A file system of this machine.
    Local,
    /// Another piece was copied.
    Goes,
    /// The last one: errno.
    Refused(i32),
    /// The last one: the file comes along.
    File(Facts),
}

impl Answer {
    pub(super) fn encode(&self) -> [u8; ANSWER_BYTES] {
        let words = match *self {
            Self::Found(device) => [0, device, 0, 0, 0, 0, 0, 0],
            Self::Local => [1, 0, 0, 0, 0, 0, 0, 0],
            Self::Goes => [2, 0, 0, 0, 0, 0, 0, 0],
            Self::Refused(error) => [3, u64::from(error.unsigned_abs()), 0, 0, 0, 0, 0, 0],
            Self::File(facts) => [
                4 | u64::from(facts.copied) << 8,
                facts.device,
                facts.inode,
                facts.size,
                facts.modified.0.cast_unsigned(),
                facts.modified.1.cast_unsigned(),
                u64::from(facts.owner) | u64::from(facts.mode) << 32,
                facts.file_system.cast_unsigned(),
            ],
        };
        let mut bytes = [0; ANSWER_BYTES];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// The process that says it has touched nothing but names; it is believed no more than necessary all the same.
    pub(super) fn decode(bytes: &[u8; ANSWER_BYTES]) -> Option<Self> {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [
            kind,
            device,
            inode,
            size,
            seconds,
            nanoseconds,
            owner_and_mode,
            file_system,
        ] = words;
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).expect("masked");
        Some(match kind & 0xff {
            0 => Self::Found(device),
            1 => Self::Local,
            2 => Self::Goes,
            3 => Self::Refused(i32::try_from(device).ok()?),
            4 => Self::File(Facts {
                device,
                inode,
                size,
                modified: (seconds.cast_signed(), nanoseconds.cast_signed()),
                owner: low(owner_and_mode),
                mode: low(owner_and_mode >> 32),
                file_system: file_system.cast_signed(),
                copied: kind >> 8 != 0,
            }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let question = Question {
            follow: true,
            limit: 1 << 40,
            avoid: vec![1, u64::MAX],
            path: b"/a b\xff".to_vec(),
        };
        let bytes = question.encode();
        assert!(bytes.len() <= PREFIX + MAX_QUESTION);
        assert_eq!(Question::decode(&bytes[PREFIX..]), Some(question));
        let facts = Facts {
            device: 1,
            inode: u64::MAX,
            size: 3,
            modified: (-4, 5),
            owner: u32::MAX,
            mode: 7,
            file_system: 0x6573_5546,
            copied: true,
        };
        for answer in [
            Answer::Found(7),
            Answer::Local,
            Answer::Goes,
            Answer::Refused(libc::ENOENT),
            Answer::File(facts),
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        assert_eq!(Answer::decode(&[0xff; ANSWER_BYTES]), None);
    }
}
