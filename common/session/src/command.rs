//! `-- COMMAND`: started with tracing already attached.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result, anyhow};
use host::descriptors::Limit;
use host::signals::was_ignored;

use crate::targets::Settings;

/// Signals that this program or its runtime treats in its own way, which is not the command's.
const RESET: [i32; 5] = [
    libc::SIGPIPE,
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
];

/// A child that exists but has not begun to run the command.
pub struct Corked {
    program: OsString,
    pid: u32,
    /// A 1 lets the child go on, a 0 sends it away. (End-of-file, when the tool is killed, does so as soon as no other
    /// child that was forked meanwhile holds the pipe open.)
    cork: Option<File>,
    spawning: Option<JoinHandle<std::io::Result<Child>>>,
}

/// The command, running.
pub struct Running {
    child: Child,
    pidfd: Option<OwnedFd>,
}

impl Corked {
    /// Forks the child, which waits before exec.
    ///
    /// # Errors
    ///
    /// When pipes or processes run out.
    pub fn spawn(argv: &[OsString]) -> Result<Self> {
        let (program, arguments) = argv.split_first().context("no command given")?;
        let (mut hello, child_hello) = pipe()?;
        let (child_cork, cork) = pipe()?;
        let mut command = Command::new(program);
        command.args(arguments);
        let limit = Limit::before();
        let ours = [hello.as_raw_fd(), cork.as_raw_fd()];
        // SAFETY: the closure makes async-signal-safe calls only and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                for signal in RESET {
                    let action = match was_ignored(signal) {
                        true => libc::SIG_IGN,
                        false => libc::SIG_DFL,
                    };
                    libc::signal(signal, action);
                }
                limit.set();
                // Else it would hold its own cork open, and wait for ever when the tool is killed.
                for end in ours {
                    libc::close(end);
                }
                let pid = libc::getpid().to_ne_bytes();
                libc::write(child_hello.as_raw_fd(), pid.as_ptr().cast(), pid.len());
                let mut go = 0_u8;
                let read = libc::read(child_cork.as_raw_fd(), (&raw mut go).cast(), 1);
                match (read, go) {
                    (1, 1) => Ok(()),
                    (1, _) => Err(std::io::Error::from_raw_os_error(libc::ECANCELED)),
                    // The tool was killed: an error that nobody takes would end in a message on stderr.
                    _ => libc::_exit(1),
                }
            });
        }
        // spawn() returns after exec, which waits for start(): hence the thread.
        let thread = Builder::new().spawn(move || command.spawn());
        let spawning = thread.context("start command: make a thread for it")?;
        let mut pid = [0_u8; 4];
        if let Err(silence) = hello.read_exact(&mut pid) {
            // Nobody is there to say it: why, is known to the thread.
            drop(cork);
            return match spawning.join() {
                Ok(Err(why)) => Err(why).context("start command"),
                _ => Err(silence).context("start command"),
            };
        }
        Ok(Self {
            program: program.clone(),
            pid: u32::from_ne_bytes(pid),
            cork: Some(cork),
            spawning: Some(spawning),
        })
    }

    /// Forks the command that the targets name, if any, and narrows `settings` to it and its children.
    ///
    /// # Errors
    ///
    /// As for [`Self::spawn`].
    pub(crate) fn for_targets(argv: &[OsString], settings: &mut Settings) -> Result<Option<Self>> {
        if argv.is_empty() {
            return Ok(None);
        }
        let corked = Self::spawn(argv)?;
        settings.only_tree_of(corked.pid());
        Ok(Some(corked))
    }

    /// The child's process ID, which the command will keep.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its process ID and its program, as the user named it.
    pub fn who(&self) -> (u32, OsString) {
        (self.pid, self.program.clone())
    }

    /// Lets the command begin.
    ///
    /// # Errors
    ///
    /// When it cannot be executed.
    pub fn start(mut self) -> Result<Running> {
        if let Some(mut cork) = self.cork.take() {
            cork.write_all(&[1]).context("start command")?;
        }
        let spawning = self.spawning.take().expect("taken here only");
        let child = spawning
            .join()
            .map_err(|_| anyhow!("the thread that starts it died"))
            .and_then(|child| Ok(child?))
            .with_context(|| format!("run {}", self.program.to_string_lossy()))?;
        // SAFETY: takes no pointers; a non-negative result is a new descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        // SAFETY: as above, nobody else owns it.
        let pidfd = RawFd::try_from(fd)
            .ok()
            .filter(|fd| *fd >= 0)
            .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Running { child, pidfd })
    }
}

impl Drop for Corked {
    fn drop(&mut self) {
        if let Some(mut cork) = self.cork.take() {
            let _ = cork.write_all(&[0]);
        }
        if let Some(spawning) = self.spawning.take() {
            // The child fails its exec; spawn() reaps it.
            let _ = spawning.join();
        }
    }
}

impl Running {
    /// Becomes readable when the command exits; -1 before Linux 5.3.
    pub fn fd(&self) -> RawFd {
        self.pidfd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Whether it has exited, or cannot be asked any more.
    pub fn exited(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    pub(crate) fn forward(&self, signal: i32) {
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: takes no pointers; the child is not reaped, so the ID is still its own.
            unsafe { libc::kill(pid, signal) };
        }
    }

    /// Waits for its end and returns its exit status, 128+n after signal n.
    ///
    /// # Errors
    ///
    /// When it cannot be waited for.
    pub fn wait(&mut self) -> Result<u8> {
        Ok(exit_code(self.child.wait().context("wait for command")?))
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

fn pipe() -> Result<(File, File)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors, which nobody else owns.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(std::io::Error::last_os_error()).context("make pipe");
        }
        Ok((File::from_raw_fd(fds[0]), File::from_raw_fd(fds[1])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&str]) -> Result<u8> {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        Corked::spawn(&argv)?.start()?.wait()
    }

    #[test]
    fn exit_statuses_are_the_commands_own() {
        assert_eq!(run(&["true"]).unwrap(), 0);
        assert_eq!(run(&["sh", "-c", "exit 7"]).unwrap(), 7);
        assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).unwrap(), 143);
        assert_eq!(run(&["test", "a b", "=", "a b"]).unwrap(), 0);
    }

    #[test]
    fn a_missing_command_is_named() {
        let message = format!("{:#}", run(&["/no/such/command"]).unwrap_err());
        assert!(
            message.starts_with("run /no/such/command: No such file"),
            "{message}"
        );
    }

    #[test]
    fn nothing_runs_before_start() {
        let corked = Corked::spawn(&["true".into()]).unwrap();
        let child = std::fs::read_link(format!("/proc/{}/exe", corked.pid())).unwrap();
        assert_eq!(child, std::env::current_exe().unwrap());
        let pid = corked.pid();
        drop(corked);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        assert!(status.is_err(), "dropped means gone: {status:?}");
    }
}
