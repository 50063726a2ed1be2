//! Options that the replay of syscount draws.

use fastrand::Rng;

/// The tool itself.
pub(crate) const TOOL: u32 = 11;
/// The process that a command becomes.
pub(crate) const COMMAND: u32 = 200;
/// Names that were asked for begin with it.
pub(crate) const LETTER: u8 = b'a';
/// Calls that there are; one is beyond the numbers whose arguments are known.
pub(crate) const NUMBERS: [u32; 12] = [0, 1, 3, 63, 64, 65, 127, 202, 448, 511, 512, 700];

/// Rows are of a process, a thread, a name or nobody.
pub(crate) const BY_PROCESS: u32 = 0;
pub(crate) const BY_THREAD: u32 = 1;
pub(crate) const BY_CALL: u32 = 3;

/// `struct syscount_config` of syscount.bpf.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) group_by: u32,
    pub(crate) failures: u32,
    pub(crate) error: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    All,
    /// The command, from its exec on, and its children.
    Command,
    /// Those whose name begins with the letter.
    Named,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) config: Config,
    pub(crate) whom: Whom,
    pub(crate) is_hashed: bool,
    /// Bits by the call's number.
    pub(crate) takes_fd: [u64; 8],
}

impl Asked {
    pub(crate) fn drawn(rng: &mut Rng) -> Self {
        let failures = u32::from(rng.u32(0..3) == 0);
        let error = *rng.choice(&[0, 0, 2, 13, 512]).expect("some");
        let mut takes_fd = [0; 8];
        takes_fd.fill_with(|| rng.u64(..));
        Self {
            config: Config {
                group_by: rng.u32(0..4),
                failures,
                error: error * failures,
            },
            whom: *rng
                .choice(&[Whom::All, Whom::Command, Whom::Named])
                .expect("some"),
            is_hashed: rng.bool(),
            takes_fd,
        }
    }

    pub(crate) fn takes_fd(&self, number: u32) -> bool {
        let bits = self.takes_fd.get(number as usize / 64);
        bits.is_some_and(|bits| bits >> (number % 64) & 1 > 0)
    }

    /// Errors that the kernel keeps to itself are no failures, unless they are asked for by number.
    pub(crate) fn takes(&self, error: u32) -> bool {
        match self.config {
            Config { failures: 0, .. } => true,
            Config { error: 0, .. } => error > 0 && !(512..=516).contains(&error),
            Config { error: asked, .. } => error == asked,
        }
    }
}
