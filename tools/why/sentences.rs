//! The answer in sentences: what costs most, and who causes it. Each is read off one line of the account.

use std::sync::Arc;

use profile::statistics;
use profile::text::{WIDTH, comm, round_percent, sentence};
use profile::units;

use crate::offcputime::{GIL, SLEEP, THROTTLED, for_what};
use crate::why::account::Account;
use crate::why::chains::Chain;
use crate::why::endpoints;
use crate::why::line::{Culprit, IDLE, LOST, Line, ON_CPU, RUN_QUEUE, UNSEEN};
use crate::why::lock::Lock;
use crate::why::words;
pub(crate) use crate::why::words::{function, program};

/// Share of busy time from which a line stands out.
pub(crate) const STANDS_OUT: f64 = 0.1;
/// Share of a line from which somebody is its culprit; of time on CPUs, from which a function is more than one of many.
pub(crate) const IS_CULPRIT: f64 = 0.2;
/// Said of programs in Go whose threads are mostly idle, their requests perhaps not.
const GOROUTINES: &str = "it runs Go: what goroutines wait for (channels, sync.Mutex) is not shown";
/// Holder-back of what no disk has a request for yet.
const LIMIT: &str = "a limit of the control group (io.max) may hold them back";
/// Share below which one of those that ran meanwhile is not worth a name beside those that are not known.
const FEW: f64 = 0.1;
/// Samples from which one of a few windows says where time goes.
const MANY_SAMPLES: u64 = 100;
/// Share of a line whose ends were seen, below which others' shares are of that part.
const MOST_SEEN: f64 = 0.5;
/// Time looked at from which figures are more than a guess, ns: a thread has done one thing or another by then.
const FEW_NS: u64 = 500_000_000;
/// Places of threads with nothing to do that are named at most.
const MOST_HOMES: usize = 3;
/// Share of the threads' time, and of the window, below which they had nothing to do.
const NOTHING: f64 = 0.01;

/// Sentences on whose time it is, what costs most of it, and who causes that.
pub(crate) fn sentences(account: &Account) -> Vec<String> {
    if account.is_of_nobody() {
        return nobody(account);
    }
    let first = account.first().filter(|_| !is_at_rest(account));
    let mut lines = whole(account, first);
    if account.is_go && account.kind_ns(IDLE) > account.lifetime_ns / 2 {
        lines.push(GOROUTINES.to_owned());
    }
    match first {
        Some(first) => {
            lines.extend(costliest(account, first));
            lines.extend(culprit(account, first));
        }
        None => lines.extend(rest(account)),
    }
    lines
}

/// Looks whether the threads had next to nothing to do.
pub(crate) fn is_at_rest(account: &Account) -> bool {
    let busy_ns = account.busy_ns() as f64;
    busy_ns < NOTHING * account.lifetime_ns as f64 && busy_ns < NOTHING * account.window.ns() as f64
}

fn nobody(account: &Account) -> Vec<String> {
    let window = units::duration(account.window.ns());
    let mut parts = vec![format!("no thread of those asked for was seen in {window}")];
    let looked = account.looked;
    parts.extend(looked.map(|looked| format!("traced {:.0}% of the time", 100.0 * looked)));
    sentence(&parts, ",", WIDTH)
}

/// `redis-server 712: 5 threads, 50.0 s of thread time in 10.0 s; 81% idle`
fn whole(account: &Account, first: Option<&Line>) -> Vec<String> {
    let who = match &account.programs[..] {
        [] => "no program with a name".to_owned(),
        [one] => program(one),
        [first, others @ ..] if others.iter().all(|(name, _)| *name == first.0) => {
            words::processes(first, account.programs.len())
        }
        [first, others @ ..] => {
            let others = units::counted(others.len() as u64, "other processes");
            format!("{} and {others}", program(first))
        }
    };
    let threads = units::counted(account.threads, "threads");
    let time = units::thread_time(account.lifetime_ns);
    let window = units::duration(account.window.ns());
    let mut parts = vec![format!("{who}: {threads}"), format!("{time} in {window}")];
    for (kind, word) in [(IDLE, "idle"), (SLEEP, "asleep by choice")] {
        let ns = account.kind_ns(kind);
        if ns > account.lifetime_ns / 200 {
            parts.push(format!("{} {word}", round_percent(ns, account.lifetime_ns)));
        }
    }
    let unclear_ns = first.map_or(0, |first| account.busy_ns() - account.rest_ns(first));
    if unclear_ns > account.lifetime_ns / 200 {
        let share = round_percent(unclear_ns, account.lifetime_ns);
        parts.push(format!("{share} perhaps waiting for work"));
    }
    let lost_ns = account.kind_ns(UNSEEN) + account.kind_ns(LOST);
    if lost_ns > account.busy_ns() / 20 {
        let share = round_percent(lost_ns, account.lifetime_ns);
        parts.push(format!("{share} lost or not seen"));
    }
    if let Some(looked) = account.looked {
        parts.push(estimated(looked, account.window.ns()));
    }
    sentence(&parts, ",", WIDTH)
}

/// Words for figures that come from a share of so many ns.
fn estimated(looked: f64, all_ns: u64) -> String {
    let looked_ns = (looked * all_ns as f64) as u64;
    match looked_ns < FEW_NS {
        true => {
            let time = units::duration(looked_ns);
            format!("a guess: traced for {time} in all, for longer with --max-overhead 100")
        }
        false => format!("estimated: traced {:.0}% of the time", 100.0 * looked),
    }
}

/// The places where threads with nothing to do wait are said, for it may be that they never get what they wait for there.
fn rest(account: &Account) -> Vec<String> {
    let busy = units::duration(account.busy_ns());
    let (they, seem) = match account.threads {
        1 => ("it", "it seems"),
        _ => ("they", "they seem"),
    };
    let parts = [
        format!("{they} had next to nothing to do:"),
        format!("{busy} is all that {they} ran, or waited for others"),
    ];
    let idle = account.lines.iter().find(|line| line.kind == IDLE);
    let homes = idle.into_iter().flat_map(|idle| {
        let all = idle.time_ns();
        let large = move |(_, ns): &&(Arc<str>, u64)| *ns as f64 >= IS_CULPRIT * all as f64;
        let home = move |(place, ns): &(Arc<str>, u64)| {
            format!("{} in {}", round_percent(*ns, all), function(place))
        };
        idle.places.iter().filter(large).take(MOST_HOMES).map(home)
    });
    let begin = format!("{seem} to wait for work:");
    let homes: Vec<String> = [begin].into_iter().chain(homes).collect();
    let mut lines = sentence(&parts, "", WIDTH);
    if homes.len() > 1 {
        lines.extend(sentence(&homes, "", WIDTH));
    }
    lines
}

/// The first sentence: the line, its share of what is neither idleness nor sleep, its time.
fn costliest(account: &Account, line: &Line) -> Vec<String> {
    let busy_ns = account.rest_ns(line);
    let share = round_percent(line.time_ns(), busy_ns);
    let whole = match share_of_rest(account, busy_ns) {
        true => "of the rest",
        // All of it is busy.
        false => "of the time",
    };
    let begin = match line.time_ns() as f64 / busy_ns.max(1) as f64 {
        part if part > 0.5 => format!("most {whole},"),
        part if part >= STANDS_OUT => format!("the largest part {whole},"),
        _ => format!("nothing stands out: the largest part {whole},"),
    };
    let mut parts = vec![
        begin,
        format!("{share} ({}),", units::duration(line.time_ns())),
    ];
    parts.push(match line.kind {
        ON_CPU => "went by on CPUs".to_owned(),
        RUN_QUEUE => "was spent waiting for a CPU".to_owned(),
        kind => match &line.lock {
            Some(lock) => format!("was spent waiting for {}", lock.in_sentence()),
            None => format!("was spent waiting {}", for_what(kind)),
        },
    });
    parts.extend(where_it_waits(line));
    if line.is_unclear {
        parts.push("(perhaps for work)".to_owned());
    }
    sentence(&parts, "", WIDTH)
}

/// The function that waits, or several for a lock: `in audit`, `and post`, or `and 2 other functions`.
fn where_it_waits(line: &Line) -> Vec<String> {
    let Some(first) = &line.place else {
        return Vec::new();
    };
    let mut parts = vec![format!("in {}", function(first))];
    parts.extend(match &line.places[..] {
        [_, (second, _)] => Some(format!("and {}", function(second))),
        [_, _, _, ..] => Some(format!("and {} other functions", line.places.len() - 1)),
        _ => None,
    });
    parts
}

/// Looks whether some of the time was spent doing nothing.
fn share_of_rest(account: &Account, busy_ns: u64) -> bool {
    busy_ns < account.lifetime_ns / 100 * 99
}

/// The second sentence: who causes it.
fn culprit(account: &Account, line: &Line) -> Vec<String> {
    let parts = match line.kind {
        ON_CPU => functions(account, line),
        THROTTLED => quota(account),
        RUN_QUEUE => neighbour(account, line),
        GIL => return turns(line),
        _ => waker(account, line),
    };
    sentence(&parts, "", WIDTH)
}

/// The threads that take turns with an interpreter.
fn turns(line: &Line) -> Vec<String> {
    let held = line.lock.as_ref().map(Lock::held).unwrap_or_default();
    match held.is_empty() {
        true => vec!["its Python threads take turns; which of them had it is not known".to_owned()],
        false => held,
    }
}

fn functions(account: &Account, line: &Line) -> Vec<String> {
    let Some(first) = line.blames.first() else {
        return vec!["no sample was taken of it".to_owned()];
    };
    let share = line.share(first);
    let name = who(&first.culprit, account);
    let mut parts = vec![format!("{name} has {:.0}% of that", 100.0 * share)];
    // Samples of windows are not independent.
    if account.looked.is_some() && line.blamed < MANY_SAMPLES {
        parts.push(format!(
            "(of {} only)",
            units::counted(line.blamed, "samples")
        ));
    }
    if account.looked.is_none() {
        let interval = statistics::share(first.value, line.blamed).interval();
        parts.push(format!("({interval} with 95% confidence)"));
    }
    if share < IS_CULPRIT {
        parts.insert(0, "spread over many functions:".to_owned());
    }
    parts
}

fn quota(account: &Account) -> Vec<String> {
    match account.quotas.first() {
        Some(quota) => {
            let [name, used] = quota.describe();
            vec![format!("the {name}:"), used]
        }
        None => {
            vec!["the group whose CPU quota it is has gone, or cannot be seen from here".to_owned()]
        }
    }
}

fn neighbour(account: &Account, line: &Line) -> Vec<String> {
    let told = line.told();
    let Some(first) = told.iter().find(|blame| !blame.culprit.is_nameless()) else {
        return vec!["nobody is known to have run meanwhile".to_owned()];
    };
    let (culprit, share) = (&first.culprit, line.share(first));
    // Any of those that are not remembered may have been it.
    let nameless = line.nameless();
    if nameless > share && share < FEW {
        return vec!["most of those that ran meanwhile are not known".to_owned()];
    }
    let least = if nameless > 0.01 { "at least " } else { "" };
    let percent = format!("{least}{:.0}% of that", 100.0 * share);
    let words = format!("{} ran for {percent}", who(culprit, account));
    let others = match share {
        _ if nameless > share => Some("most of those that ran meanwhile are not known:"),
        share if share < IS_CULPRIT => Some("behind many others:"),
        _ => None,
    };
    let others = others.map(str::to_owned).into_iter();
    others.chain([words]).collect()
}

fn waker(account: &Account, line: &Line) -> Vec<String> {
    let first = line.first_told();
    let is_interrupt = |(culprit, _): &(Culprit, f64)| *culprit == Culprit::Interrupt;
    if let Some((endpoint, share)) = endpoints::connection(line)
        && share >= IS_CULPRIT
        && first.as_ref().is_none_or(is_interrupt)
    {
        // No thread is known to have ended it: the other end is all that there is.
        return vec![format!("{:.0}% of that was for {endpoint}", 100.0 * share)];
    }
    let endpoint = endpoints::sentence(line).into_iter();
    let Some((culprit, share)) = first else {
        let nobody = match &line.locked {
            Some(locked) => locked.sentence(),
            None if line.is_retried => {
                "SQLite tries again by the clock; nobody was seen to have it locked".to_owned()
            }
            None => "who ended these waits is not known".to_owned(),
        };
        return [nobody].into_iter().chain(endpoint).collect();
    };
    let percent = format!("{:.0}% of that", 100.0 * share);
    if culprit == Culprit::Nobody {
        let nobody = format!("{percent} nobody has ended yet");
        return [nobody].into_iter().chain(endpoint).collect();
    }
    if culprit == Culprit::HeldBack {
        let words = format!("{percent} went by {}:", who(&culprit, account));
        return vec![words, LIMIT.to_owned()];
    }
    if let Culprit::Disk(..) = culprit {
        let words = format!("{percent} went by {}", who(&culprit, account));
        let users = line.users.iter();
        let users = users.flat_map(|users| users.sentence(line));
        return [words].into_iter().chain(endpoint).chain(users).collect();
    }
    let held = line.lock.as_ref().map(Lock::held).unwrap_or_default();
    if culprit == Culprit::Interrupt && !held.is_empty() {
        // PostgreSQL's processes look by the clock who has it.
        return held.iter().map(|line| line.trim().to_owned()).collect();
    }
    let about = ended(account, line, &culprit, share);
    about
        .into_iter()
        .chain(endpoint)
        .chain(behind(line))
        .collect()
}

/// The one that ended most of a line's waits: `db 9 ended 97% of that in put`.
fn ended(account: &Account, line: &Line, culprit: &Culprit, share: f64) -> Vec<String> {
    let seen = 1.0 - line.nameless();
    let (share, whole) = match seen < MOST_SEEN {
        true => (share / seen, "the part whose end was seen"),
        false => (share, "that"),
    };
    let words = format!(
        "{} ended {:.0}% of {whole}",
        who(culprit, account),
        100.0 * share
    );
    let place = match culprit {
        Culprit::Program(_, Some(place)) | Culprit::Crowd(_, _, Some(place)) => {
            Some(format!("in {}", function(place)))
        }
        _ => None,
    };
    let many = (share < IS_CULPRIT).then(|| "many ended these waits:".to_owned());
    many.into_iter().chain([words]).chain(place).collect()
}

/// Doings of a lock's holders, and what is at the root.
fn behind(line: &Line) -> Vec<String> {
    let doing = line.lock.as_ref().map(Lock::doing).unwrap_or_default();
    let root = line.chain.as_ref().and_then(Chain::root);
    let root = root.map(|root| format!("at the root: {root}"));
    doing.into_iter().chain(root).collect()
}

/// Words for a culprit.
pub(crate) fn who(culprit: &Culprit, account: &Account) -> String {
    match culprit {
        Culprit::Program(one, _) => program(one),
        Culprit::Crowd(first, number, _) => words::processes(first, *number),
        Culprit::Interrupt => "an interrupt".to_owned(),
        Culprit::Nobody => "nobody yet".to_owned(),
        Culprit::Unseen => "somebody who was not seen".to_owned(),
        Culprit::HeldBack => "before there were requests to a disk".to_owned(),
        Culprit::Disk(disk, phase) => words::place(disk, *phase),
        // One program need not be named again and again.
        Culprit::Function(name, program) => match account.programs.len() {
            0 | 1 => function(name),
            _ => format!("{} of {}", function(name), comm(program)),
        },
    }
}
