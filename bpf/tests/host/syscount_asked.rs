//! Options that the replay of syscount draws.

use bpf::syscount::types::{glob, group_by, syscount_config, target_config, wait_config};
use fastrand::Rng;

use crate::host::Host;

/// The tool itself.
pub(crate) const TOOL: u32 = 11;
/// The process that a command becomes.
pub(crate) const COMMAND: u32 = 200;
/// Names that were asked for begin with it.
pub(crate) const LETTER: u8 = b'a';
/// Calls that there are; one is beyond the numbers whose arguments are known.
pub(crate) const NUMBERS: [u32; 12] = [0, 1, 3, 63, 64, 65, 127, 202, 448, 511, 512, 700];

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
    pub(crate) config: syscount_config,
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
            config: syscount_config {
                group_by: group_by(rng.u32(0..4)),
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

    pub(crate) fn tell(&self, host: &Host) {
        let (is_command, is_named) = (self.whom == Whom::Command, self.whom == Whom::Named);
        let mut letter = glob {
            star: 1 << 1,
            final_mask: 1 << 2,
            ..glob::default()
        };
        letter.accept[usize::from(LETTER)] = 1 << 0;
        let targets = target_config {
            own_tgid: TOOL,
            own_since_ns: u64::MAX,
            by_tgid: is_command.into(),
            follow: is_command.into(),
            by_comm: is_named.into(),
            ..target_config::default()
        };
        let waits = wait_config {
            takes_fd: self.takes_fd,
            ..wait_config::default()
        };
        host.set("config", &self.config);
        host.set("targets", &targets);
        host.set("comm_glob", &letter);
        host.set("waits", &waits);
        host.set("members_in_hash", &u32::from(self.is_hashed));
        if is_command {
            host.tell("host_want", (COMMAND,));
        }
    }

    pub(crate) fn takes_fd(&self, number: u32) -> bool {
        let bits = self.takes_fd.get(number as usize / 64);
        bits.is_some_and(|bits| bits >> (number % 64) & 1 > 0)
    }

    /// Errors that the kernel keeps to itself are no failures, unless they are asked for by number.
    pub(crate) fn takes(&self, error: u32) -> bool {
        match self.config {
            syscount_config { failures: 0, .. } => true,
            syscount_config { error: 0, .. } => error > 0 && !(512..=516).contains(&error),
            syscount_config { error: asked, .. } => error == asked,
        }
    }
}
