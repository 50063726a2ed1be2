//! The answer in sentences: what costs most, and who causes it. Each is read off one line of the account.

use profile::escape::terminal;
use profile::statistics;
use profile::text::{WIDTH, comm, cut, round_percent, sentence};
use profile::units;

use crate::offcputime::{SLEEP, THROTTLED, for_what};
use crate::why::account::Account;
use crate::why::line::{Blame, Culprit, IDLE, Line, ON_CPU, Program, RUN_QUEUE};

/// Share of busy time from which a line stands out.
pub(crate) const STANDS_OUT: f64 = 0.1;
/// Share of a line from which somebody is its culprit; of time on CPUs, from which a function is more than one of many.
pub(crate) const IS_CULPRIT: f64 = 0.2;
/// Share of the threads' time, and of the window, below which they had nothing to do.
const NOTHING: f64 = 0.01;
/// Columns of a function's name.
const NAME: usize = 40;

/// All of them.
pub(crate) fn sentences(account: &Account) -> Vec<String> {
    let mut lines = whole(account);
    let first = account.first().filter(|_| !is_at_rest(account));
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

/// `redis-server 712: 5 threads, 50.0 s of thread time in 10.0 s; 81% idle`
fn whole(account: &Account) -> Vec<String> {
    let who = match &account.programs[..] {
        [] => "nobody".to_owned(),
        [one] => program(one),
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
    if let Some(looked) = account.looked {
        parts.push(format!(
            "estimated: looked {:.0}% of the time",
            100.0 * looked
        ));
    }
    sentence(&parts, ",", WIDTH)
}

/// Words for a program.
pub(crate) fn program((name, pid): &Program) -> String {
    match pid {
        0 => comm(name),
        pid => format!("{} {pid}", comm(name)),
    }
}

/// Words for a function's name.
pub(crate) fn function(name: &str) -> String {
    cut(&terminal(name), NAME)
}

fn rest(account: &Account) -> Vec<String> {
    let busy = units::duration(account.busy_ns());
    let parts = [
        "they had next to nothing to do:".to_owned(),
        format!("{busy} is all that they ran, or waited for others"),
    ];
    sentence(&parts, "", WIDTH)
}

/// The first sentence: the line, its share of what is neither idleness nor sleep, its time.
fn costliest(account: &Account, line: &Line) -> Vec<String> {
    let busy_ns = account.busy_ns();
    let share = round_percent(line.time_ns(), busy_ns);
    let begin = match line.time_ns() as f64 >= STANDS_OUT * busy_ns as f64 {
        true => "most of the rest,",
        false => "nothing stands out: the largest part of the rest,",
    };
    let begin = match share_of_rest(account) {
        true => begin.to_owned(),
        // All of it is busy.
        false => begin.replace(" of the rest", " of the time"),
    };
    let mut parts = vec![
        begin,
        format!("{share} ({}),", units::duration(line.time_ns())),
    ];
    parts.push(match line.kind {
        ON_CPU => "went by on CPUs".to_owned(),
        RUN_QUEUE => "was waited for a CPU".to_owned(),
        kind => format!("was waited {}", for_what(kind)),
    });
    parts.extend(
        line.place
            .iter()
            .map(|place| format!("in {}", function(place))),
    );
    sentence(&parts, "", WIDTH)
}

/// Looks whether some of the time was spent doing nothing.
fn share_of_rest(account: &Account) -> bool {
    account.busy_ns() < account.lifetime_ns / 100 * 99
}

/// The second sentence: who causes it.
fn culprit(account: &Account, line: &Line) -> Vec<String> {
    let parts = match line.kind {
        ON_CPU => return sentence(&functions(line), "", WIDTH),
        THROTTLED => quota(account),
        RUN_QUEUE => neighbour(line),
        _ => waker(line),
    };
    sentence(&parts, "", WIDTH)
}

fn functions(line: &Line) -> Vec<String> {
    let Some(Blame {
        culprit: Culprit::Function(name),
        value,
    }) = line.blames.first()
    else {
        return vec!["no sample was taken".to_owned()];
    };
    let share = statistics::share(*value, line.blamed);
    let words = format!("{} has {:.0}% of that", function(name), 100.0 * share.share);
    let interval = format!("({} with 95% confidence)", share.interval());
    match share.share >= IS_CULPRIT {
        true => vec![words, interval],
        false => vec!["spread over many functions:".to_owned(), words, interval],
    }
}

fn quota(account: &Account) -> Vec<String> {
    match account.quotas.first() {
        Some(quota) => {
            let [name, used] = quota.describe();
            vec![format!("the {name}:"), used]
        }
        None => vec!["the group whose CPU quota it is cannot be seen from here".to_owned()],
    }
}

fn neighbour(line: &Line) -> Vec<String> {
    let Some((culprit, share)) = line.first_blame() else {
        return vec!["nobody was seen running meanwhile".to_owned()];
    };
    let words = format!("{} ran for {:.0}% of that", who(culprit), 100.0 * share);
    match share >= IS_CULPRIT {
        true => vec![words],
        false => vec!["behind many others:".to_owned(), words],
    }
}

fn waker(line: &Line) -> Vec<String> {
    let Some((culprit, share)) = line.first_blame() else {
        return vec!["who ended these waits is not known".to_owned()];
    };
    let percent = format!("{:.0}% of that", 100.0 * share);
    if *culprit == Culprit::Nobody {
        return vec![format!("{percent} nobody has ended yet")];
    }
    let words = format!("{} ended {percent}", who(culprit));
    let place = match culprit {
        Culprit::Program(_, Some(place)) => Some(format!("in {}", function(place))),
        _ => None,
    };
    let many = (share < IS_CULPRIT).then(|| "many ended these waits:".to_owned());
    many.into_iter().chain([words]).chain(place).collect()
}

/// Words for a culprit.
pub(crate) fn who(culprit: &Culprit) -> String {
    match culprit {
        Culprit::Program(one, _) => program(one),
        Culprit::Interrupt => "an interrupt".to_owned(),
        Culprit::Nobody => "nobody yet".to_owned(),
        Culprit::Function(name) => function(name),
    }
}
