//! The account for programs.

use std::sync::Arc;

use profile::text::{columns, cut};
use serde_json::{Map, Value, json};
use session::closing::Closing;
use session::quotas::UsedUp;

use crate::why::account::Account;
use crate::why::chains::Chain;
use crate::why::chosen::Chosen;
use crate::why::cycles_json;
use crate::why::endpoints;
use crate::why::line::{Blame, Culprit, Line, Program};
use crate::why::lock::Lock;
use crate::why::timeline;

/// Most bytes of the brief form.
const BRIEF: usize = 4096;

/// All of the account, beside the stacks.
pub(crate) fn whole(account: &Account, closing: &Closing) -> Map<String, Value> {
    let mut whole = Map::new();
    account.window.add_to(&mut whole);
    let quotas = account.quotas.iter().map(UsedUp::to_json);
    for (key, value) in [
        ("threads", account.threads.into()),
        ("lifetime_ns", account.lifetime_ns.into()),
        ("busy_ns", account.busy_ns().into()),
        ("looked", json!(account.looked.unwrap_or(1.0))),
        (
            "chosen",
            json!(account.chosen.as_ref().map(Chosen::to_json)),
        ),
        ("lines", account.lines.iter().map(line).collect()),
        ("quotas", quotas.collect()),
        (
            "cycles",
            json!(account.cycles.as_ref().map(cycles_json::whole)),
        ),
        (
            "timeline",
            timeline::to_json(&account.moments, |moment| account.cpus(moment)),
        ),
        ("losses", closing.losses.to_json()),
        ("cost", closing.cost.to_json()),
    ] {
        whole.insert(key.into(), value);
    }
    whole
}

/// The answer, and as many of the largest lines as there is room for, in their order.
pub(crate) fn brief(account: &Account, answer: &[String]) -> Value {
    let lines = account.lines.iter();
    let mut lines: Vec<(u64, Value)> = lines
        .map(|one| (one.ns.unsigned_abs(), short(one)))
        .collect();
    let mut answer = sentences(answer);
    let mut of_cycles = cycles_json::BRIEF_LINES;
    loop {
        let more = account.lines.len() - lines.len();
        let mut brief = json!({
            "answer": answer,
            "start_ns": account.window.start_ns,
            "end_ns": account.window.end_ns,
            "threads": account.threads,
            "lifetime_ns": account.lifetime_ns,
            "busy_ns": account.busy_ns(),
            "looked": account.looked.unwrap_or(1.0),
            "chosen": account.chosen.as_ref().map(Chosen::to_json),
            "lines": lines.iter().map(|(_, line)| line.clone()).collect::<Value>(),
            "more_lines": more,
        });
        if let Some(cycles) = &account.cycles {
            brief["cycles"] = cycles_json::brief(cycles, of_cycles);
        }
        // A line's end follows; nothing is left to leave out without an answer.
        if brief.to_string().len() < BRIEF || answer.is_empty() {
            return brief;
        }
        let least = lines.iter().map(|(ns, _)| *ns).enumerate();
        if let Some((least, _)) = least.min_by_key(|(at, ns)| (*ns, usize::MAX - at)) {
            lines.remove(least);
            continue;
        }
        // Names may be long, and the command that looks further be a program with all its words.
        match of_cycles.checked_sub(1) {
            Some(fewer) if account.cycles.is_some() => of_cycles = fewer,
            _ => {
                answer = match columns(&answer) / 2 {
                    0 => String::new(),
                    half => cut(&answer, half),
                };
            }
        }
    }
}

/// Lines of a terminal as one text: those that go on a sentence are indented.
fn sentences(lines: &[String]) -> String {
    let lines = lines.iter().enumerate().map(|(at, line)| match at {
        0 => line.clone(),
        _ if line.starts_with(' ') => format!(" {}", line.trim()),
        _ => format!(". {line}"),
    });
    lines.collect()
}

/// A line with its first process, culprit and endpoint.
fn short(line: &Line) -> Value {
    let process = line.whose.first().map(|(one, _)| program(one));
    let culprit = line.blames.first().map(|blame| culprit(line, blame));
    let mut short = time(line);
    short["process"] = json!(process);
    short["culprit"] = json!(culprit);
    short["endpoint"] = json!(endpoints::first_to_json(line));
    short
}

fn line(line: &Line) -> Value {
    let process = |(one, ns): &(Program, u64)| {
        let mut process = program(one);
        process["ns"] = json!(ns);
        process
    };
    let culprits = line.blames.iter().map(|blame| culprit(line, blame));
    let mut whole = time(line);
    whole["processes"] = line.whose.iter().map(process).collect();
    whole["places"] = line.places.iter().map(place).collect();
    whole["culprits"] = culprits.collect();
    whole["chain"] = json!(line.chain.as_ref().map(Chain::to_json));
    whole["endpoints"] = endpoints::to_json(line);
    whole["lock"] = json!(line.lock.as_ref().map(Lock::to_json));
    if let Some(users) = &line.users {
        whole["disk_users"] = users.to_json();
    }
    if let Some(locked) = &line.locked {
        whole["locked_by"] = locked.to_json();
    }
    whole
}

fn place((function, ns): &(Arc<str>, u64)) -> Value {
    json!({ "function": &**function, "ns": ns })
}

/// A line without those whose it is.
fn time(line: &Line) -> Value {
    json!({
        "kind": line.kind,
        "place": line.place.as_deref(),
        "ns": line.ns,
        "waits": line.waits,
        "p99_ns": line.p99_ns(),
        "busy": line.is_busy(),
        "unclear": line.is_unclear,
    })
}

fn program((name, pid): &Program) -> Value {
    json!({ "comm": &**name, "pid": pid })
}

/// The share is of what culprits are known of, from 0 to 1.
fn culprit(line: &Line, blame: &Blame) -> Value {
    let mut found = match &blame.culprit {
        Culprit::Program(one, place) => {
            let mut found = program(one);
            found["function"] = json!(place.as_deref());
            found
        }
        Culprit::Crowd((comm, _), number, _) => json!({ "comm": &**comm, "processes": number }),
        Culprit::Interrupt => json!({ "interrupt": true }),
        Culprit::HeldBack => json!({ "held_back": true }),
        Culprit::Nobody => json!({ "open": true }),
        Culprit::Disk(disk, phase) => json!({ "disk": &**disk, "phase": phase.key() }),
        Culprit::Unseen => json!({ "unseen": true }),
        Culprit::Function(name, program) => json!({ "function": &**name, "comm": &**program }),
    };
    found["share"] = json!(line.share(blame));
    found
}
