//! Work cycles for programs.

use profile::text::cut;
use serde_json::{Value, json};

use crate::offcputime::Endpoint;
use crate::why::cycles::{Cycles, Exemplar, Home, Part};
use crate::why::kinds::At;

/// Lines of the brief form.
pub(crate) const BRIEF_LINES: usize = 4;
/// Columns of its names.
const BRIEF_NAME: usize = 160;

/// All of it.
pub(crate) fn whole(cycles: &Cycles) -> Value {
    let mut whole = groups(cycles);
    whole["cut"] = json!(cycles.cut);
    whole["looked_ns"] = json!(cycles.looked_ns);
    let home = |one| home(cycles, one);
    whole["homes"] = cycles.homes.iter().map(home).collect();
    whole["lines"] = lines(cycles, cycles.parts.len());
    whole["slowest"]["cycles"] = cycles.exemplars.iter().map(exemplar).collect();
    whole
}

/// The first home, and so many of the lines by which its slowest differ most.
pub(crate) fn brief(cycles: &Cycles, most: usize) -> Value {
    let mut brief = groups(cycles);
    brief["cut"] = json!(cycles.cut);
    brief["home"] = json!(cycles.homes.first().map(|one| home(cycles, one)));
    brief["lines"] = lines(cycles, most);
    shorten(&mut brief["home"]);
    let lines = brief["lines"].as_array_mut();
    lines.into_iter().flatten().for_each(shorten);
    brief
}

/// Names of functions and paths have no limit of their own.
fn shorten(named: &mut Value) {
    for field in ["place", "lock", "file", "peer", "clients_of"] {
        if let Some(name) = named.get(field).and_then(Value::as_str) {
            named[field] = json!(cut(name, BRIEF_NAME));
        }
    }
    if let Some(endpoint) = named.get_mut("endpoint") {
        shorten(endpoint);
    }
}

fn groups(cycles: &Cycles) -> Value {
    let (slow, rest) = (cycles.slow, cycles.rest);
    json!({
        "percent": cycles.percent,
        "slowest": { "count": slow.count.round() as u64, "mean_ns": slow.mean_ns(slow.ns) },
        "others": { "count": rest.count.round() as u64, "mean_ns": rest.mean_ns(rest.ns) },
    })
}

fn home(cycles: &Cycles, home: &Home) -> Value {
    let lengths = &home.lengths;
    let (name, pid) = &home.program;
    json!({
        "comm": &**name,
        "pid": (*pid > 0).then_some(pid),
        "processes": home.processes,
        "kind": home.kind,
        "place": home.place.as_deref(),
        "count": lengths.count(),
        "per_second": cycles.rate(home),
        "ns": lengths.sum(),
        "p50_ns": lengths.percentile(50.0),
        "p99_ns": lengths.percentile(99.0),
        "max_ns": lengths.max(),
    })
}

/// Means of each group.
fn lines(cycles: &Cycles, most: usize) -> Value {
    let line = |part: &Part| {
        let mut line = at(&part.at);
        line["slowest_ns"] = json!(cycles.slow.mean_ns(part.slow_ns));
        line["others_ns"] = json!(cycles.rest.mean_ns(part.rest_ns));
        if let Some((endpoint, [slow, rest])) = part.shares() {
            line["endpoint"] = endpoint.to_json();
            line["endpoint"]["slowest_share"] = json!(slow);
            line["endpoint"]["others_share"] = json!(rest);
        }
        line
    };
    cycles.parts.iter().take(most).map(line).collect()
}

fn exemplar(one: &Exemplar) -> Value {
    let part = |(place, ns, endpoint): &(At, u64, Option<Endpoint>)| {
        let mut part = at(place);
        part["ns"] = json!(ns);
        part["endpoint"] = json!(endpoint.as_ref().map(Endpoint::to_json));
        part
    };
    json!({
        "begin_ns": one.begin_ns,
        "ns": one.ns,
        "comm": &*one.thread.0,
        "tid": one.thread.1,
        "pid": one.tgid,
        "lines": one.parts.iter().map(part).collect::<Value>(),
    })
}

fn at(at: &At) -> Value {
    json!({ "kind": at.kind, "place": at.place.as_deref(), "lock": at.lock })
}
