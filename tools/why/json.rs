//! The account for programs.

use std::sync::Arc;

use profile::frame::Frame;
use serde_json::{Value, json};
use session::closing::Closing;

use crate::why::account::{Account, Blame, Culprit, Line, Program};

/// All of it.
pub(crate) fn json(account: &Account, closing: &Closing) -> Value {
    json!({
        "start_ns": account.window.start_ns,
        "end_ns": account.window.end_ns,
        "threads": account.threads,
        "lifetime_ns": account.lifetime_ns,
        "busy_ns": account.busy_ns(),
        "lines": account.lines.iter().map(line).collect::<Value>(),
        "quotas": account.quotas.iter().map(session::quotas::UsedUp::to_json).collect::<Value>(),
        "losses": closing.losses.to_json(),
        "cost": closing.cost.to_json(),
    })
}

fn line(line: &Line) -> Value {
    json!({
        "kind": line.kind,
        "place": line.place.as_deref(),
        "ns": line.ns,
        "waits": line.waits,
        "busy": line.is_busy(),
        "processes": line.whose.iter().map(|(one, ns)| {
            let mut process = program(one);
            process["ns"] = json!(ns);
            process
        }).collect::<Value>(),
        "culprits": line.blames.iter().map(|blame| culprit(line, blame)).collect::<Value>(),
        "kernel": names(&line.stack.0),
        "user": names(&line.stack.1),
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
        Culprit::Interrupt => json!({ "interrupt": true }),
        Culprit::Nobody => json!({ "open": true }),
        Culprit::Function(name) => json!({ "function": &**name }),
    };
    found["share"] = json!(line.share(blame));
    found
}

fn names(frames: &Arc<[Frame]>) -> Value {
    frames.iter().map(|frame| json!(&*frame.name)).collect()
}
