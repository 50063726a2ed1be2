//! Those who used a disk while a line waited for it, and the command that looks further at it.

use std::process;

use serde_json::{Value, json};
use session::next::{Step, is_plain};

use crate::biolatency::Phase;
use crate::why::line::{Culprit, Line, Program, Users};
use crate::why::words::{disk, program};

/// Share of a disk's time from which others than those who waited for it are named.
const OTHERS: f64 = 0.05;
/// Processes that are named.
const NAMED: usize = 2;
impl Users {
    /// Others than those whose line it is, who have a share of the disk's time, from 0 to 1; the most first.
    pub(crate) fn others(&self, line: &Line) -> Vec<(&Program, f64)> {
        let all: u64 = self.users.iter().map(|(_, ns)| ns).sum();
        let is_own = |user: &Program| line.whose.iter().any(|(own, _)| own.1 == user.1);
        // The tool reads files, too, and is no answer.
        let is_other = |user: &Program| !is_own(user) && user.1 != process::id();
        let others = self.users.iter().filter(|(user, _)| is_other(user));
        let shares = others.map(|(user, ns)| (user, *ns as f64 / all.max(1) as f64));
        let large = shares.filter(|(_, share)| *share >= OTHERS);
        large.take(NAMED).collect()
    }

    /// `[{"comm", "pid", "device_ns"}, ...]`
    pub(crate) fn to_json(&self) -> Value {
        let user = |((comm, pid), ns): &(Program, u64)| json!({ "comm": &**comm, "pid": pid, "device_ns": ns });
        json!({ "disk": &*self.disk, "users": self.users.iter().map(user).collect::<Value>() })
    }

    /// The one of the others who had most of the disk's time.
    pub(crate) fn sentence(&self, line: &Line) -> Option<String> {
        let (user, share) = self.others(line).into_iter().next()?;
        let user = user_name(user);
        Some(format!(
            "({:.0}% of the disk's time was for {user})",
            100.0 * share
        ))
    }

    /// `vda meanwhile for fio 4711 71%`
    pub(crate) fn remark(&self, line: &Line) -> Option<String> {
        let others = self.others(line);
        let named = others.iter().map(|(user, share)| {
            let share = 100.0 * share;
            format!("{} {share:.0}%", user_name(user))
        });
        let named: Vec<String> = named.collect();
        let disk = disk(&self.disk);
        (!named.is_empty()).then(|| format!("  {disk} meanwhile for {}", named.join(", ")))
    }
}

/// Words for a process that used a disk.
pub(crate) fn user_name(user: &Program) -> String {
    match user {
        (name, 0) if name.is_empty() => "submitters not seen".to_owned(),
        user => program(user),
    }
}

/// The command that looks further at the disk that a line waited for.
pub(crate) fn next(line: &Line) -> Option<String> {
    let (culprit, _) = line.first_blame()?;
    let Culprit::Disk(disk, phase) = culprit else {
        return None;
    };
    let step = match phase {
        Phase::Queued | Phase::Before => Step::Phases,
        Phase::Device | Phase::Total => Step::Disks,
    };
    is_plain(disk).then(|| step.line(&format!("-d {disk}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_on_the_disk_are_named_by_their_share_of_its_time() {
        let users = [(("dd", 9), 60), (("", 0), 20), (("db", 7), 20)];
        let users = users.map(|((name, pid), ns)| ((name.into(), pid), ns));
        let line = Line {
            whose: vec![(("db".into(), 7), 33)],
            users: Some(Users {
                disk: "vda".into(),
                users: users.into(),
            }),
            ..Line::default()
        };
        let users = line.users.as_ref().expect("a disk");
        assert_eq!(
            users.remark(&line).as_deref(),
            Some("  vda meanwhile for dd 9 60%, submitters not seen 20%")
        );
        assert_eq!(
            users.sentence(&line).as_deref(),
            Some("(60% of the disk's time was for dd 9)")
        );
    }
}
