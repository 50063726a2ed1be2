//! Reports on accounts that are made up.

use host::clock::Edges;
use profile::style::Style;
use profile::text::columns;
use session::Options;
use session::quotas::UsedUp;

use super::account::Account;
use super::args::Args;
use super::line::{Blame, Culprit, IDLE, LOST, Line, ON_CPU, RESIDUAL, RUN_QUEUE};

use super::{json, next, sentences, table};
use crate::narrow::{MANY, PATHS, assert_narrow};
use crate::offcputime::{SLEEP, THROTTLED};

pub(super) const MS: u64 = 1_000_000;

pub(super) fn args(line: &str) -> Args {
    Args::from_command_line(&line.split(' ').map(Into::into).collect::<Vec<_>>()).expect("options")
}

pub(super) fn program(name: &str, pid: u32) -> Culprit {
    Culprit::Program((name.into(), pid), Some("put".into()))
}

pub(super) fn line(kind: &'static str, ms: u64, blames: &[(Culprit, u64)]) -> Line {
    Line {
        kind,
        place: (kind == "futex").then(|| "get".into()),
        ns: (ms * MS).cast_signed(),
        waits: 3,
        whose: vec![(("app".into(), 7), ms * MS)],
        blames: blames
            .iter()
            .map(|(culprit, value)| Blame {
                culprit: culprit.clone(),
                value: *value,
            })
            .collect(),
        blamed: blames.iter().map(|(_, value)| value).sum(),
        ..Line::default()
    }
}

/// Two threads for a second; what lines do not have is idleness.
pub(super) fn account(lines: Vec<Line>) -> Account {
    let ns: i64 = lines.iter().map(|line| line.ns).sum();
    let idle = 2_000 - ns.cast_unsigned() / MS;
    let mut lines = lines;
    lines.extend([line(IDLE, idle, &[]), line(RESIDUAL, 0, &[])]);
    Account {
        window: Edges {
            start_ns: 5,
            end_ns: 1_000 * MS + 5,
        },
        threads: 2,
        lifetime_ns: 2_000 * MS,
        lines,
        programs: vec![("app".into(), 7)],
        is_go: false,
        quotas: Vec::new(),
        looked: None,
        cycles: None,
        moments: Vec::new(),
        chosen: None,
    }
}

/// The sentences as one text.
pub(super) fn said(account: &Account) -> String {
    let lines = sentences::sentences(account);
    let words: Vec<&str> = lines
        .iter()
        .flat_map(|line| line.split_whitespace())
        .collect();
    words.join(" ")
}

pub(super) fn table(account: &Account) -> String {
    let mut table = Vec::new();
    let written = table::table(&args("why -v"), account).write(Style::Plain, &mut table);
    written.expect("a vector");
    String::from_utf8(table).expect("text")
}

fn of_function(name: &str) -> Culprit {
    Culprit::Function(name.into(), "app".into())
}

/// The command that a report ends with.
pub(super) fn command(account: &Account) -> String {
    let line = next::next(&args("why -p 7"), account, |pid| pid != 0);
    let line = line.strip_prefix("next: ").expect("a command");
    line.split("   #").next().expect("its end").to_owned()
}

#[test]
fn the_largest_line_and_its_culprit_are_said() {
    let put = [(program("keeper", 9), 60), (Culprit::Interrupt, 40)];
    let futex = line("futex", 300, &put);
    let cpu = line(ON_CPU, 100, &[(of_function("f"), 80)]);
    let text = said(&account(vec![futex, cpu]));
    for words in [
        "80% idle",
        "most of the rest, 75% (300 ms), was spent waiting for locks or condition variables in get",
        "keeper 9 ended 60% of that in put",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Sleep by choice costs nothing, however long.
    let slept = account(vec![line(SLEEP, 1_500, &[]), line("pipe", 20, &put)]);
    assert!(said(&slept).contains("100% (20.0 ms), was spent waiting on pipes"));
    let functions = [("f", 10), ("g", 5), ("h", 95)].map(|(name, n)| (of_function(name), n));
    let text = said(&account(vec![line(ON_CPU, 900, &functions[..1])]));
    assert!(
        text.contains("f has 100% of that (72.2-100.0% with 95% confidence)"),
        "{text}"
    );
    let text = said(&account(vec![line(ON_CPU, 900, &functions)]));
    assert!(
        text.contains("spread over many functions: f has 9% of that"),
        "{text}"
    );
}

#[test]
fn where_nothing_stands_out_or_nobody_is_to_blame_it_is_said() {
    let lines = [
        "futex", "pipe", "socket", "poll", "epoll", "wait", "device", "lock", "inotify", "other",
        "eventfd",
    ];
    let many = lines.map(|kind| line(kind, 50, &[]));
    let text = said(&account(many.into()));
    assert!(
        text.contains("nothing stands out: the largest part of the rest, 9% (50.0 ms)"),
        "{text}"
    );
    assert!(
        text.contains("who ended these waits is not known"),
        "{text}"
    );
    let blames: Vec<_> = (1..=10).map(|pid| (program("a", pid), 10)).collect();
    let text = said(&account(vec![line("pipe", 90, &blames)]));
    assert!(
        text.contains("10 processes of a ended 100% of that in put"),
        "{text}"
    );
    let blames = ["f", "g", "h"].map(|function| {
        let process = ("a".into(), function.as_bytes()[0].into());
        (Culprit::Program(process, Some(function.into())), 10)
    });
    let text = said(&account(vec![line("pipe", 90, &blames)]));
    assert!(text.ends_with("3 processes of a ended 100% of that"));
    let hangs = [(Culprit::Nobody, 9), (program("a", 1), 1)];
    let text = said(&account(vec![line("futex", 90, &hangs)]));
    assert!(text.contains("90% of that nobody has ended yet"), "{text}");
    let text = said(&account(vec![line("pipe", 9, &[])]));
    assert!(
        text.contains("they had next to nothing to do: 9.00 ms"),
        "{text}"
    );
}

#[test]
fn where_nobody_was_there_nobody_had_next_to_nothing_to_do() {
    let mut nobody = account(Vec::new());
    (nobody.threads, nobody.lifetime_ns) = (0, 0);
    let text = said(&nobody);
    assert_eq!(text, "no thread of those asked for was seen in 1.00 s");
    nobody.looked = Some(0.3);
    assert!(said(&nobody).ends_with(", traced 30% of the time"));
}

#[test]
fn where_threads_at_rest_wait_is_told() {
    let mut idle = line("idle", 900, &[]);
    idle.places = [("pool.get", 600), ("serve", 250), ("log", 50)]
        .map(|(place, ms)| (place.into(), ms * MS))
        .into();
    let account = account(vec![idle]);
    let text = said(&account);
    let end = "they seem to wait for work: 67% in pool.get 28% in serve";
    assert!(text.ends_with(end), "{text}");
    let next = next::next(&args("why 10"), &account, |_| true);
    assert!(next.contains("pressure 5 1"), "{next}");
}

#[test]
fn reports_fit_a_terminal_and_lines_come_to_all() {
    let hostile = PATHS[0];
    let culprit = Culprit::Program((hostile.into(), u32::MAX), Some(hostile.into()));
    let mut lines: Vec<Line> = ["futex", RUN_QUEUE, ON_CPU]
        .map(|kind| line(kind, 100, &[(culprit.clone(), MANY)]))
        .into();
    for line in &mut lines {
        line.place = Some(hostile.into());
        line.places = [(hostile.into(), 60), (PATHS[1].into(), 40)].into();
        line.waits = MANY;
    }
    let mut account = account(lines);
    account.programs = vec![(hostile.into(), u32::MAX), ("b".into(), 1)];
    account.looked = Some(0.123);
    let words = sentences::sentences(&account).join("\n");
    assert_narrow(&words);
    let table = table(&account);
    let titles = "    TIME  SHARE    WAITS     AVG     P99  WHERE THE TIME WENT\n";
    assert!(table.starts_with(titles), "{table}");
    assert_narrow(&table);
    assert!(table.lines().all(|line| columns(line) <= 80), "{table}");
    for share in [" 5.0%", " 85.0%", " 100.0%"] {
        assert!(table.contains(share), "{share}: {table}");
    }
}

#[test]
fn the_brief_form_is_never_longer_than_it_may_be() {
    let culprit = Culprit::Program(("\u{1}".repeat(15).into(), 1), Some("f".repeat(700).into()));
    let lines = (0..40).map(|_| line("futex", 10, &[(culprit.clone(), 1)]));
    let account = account(lines.collect());
    let mut answer = sentences::sentences(&account);
    let brief = json::brief(&account, &answer);
    let text = format!("{brief}\n");
    assert!(text.len() <= 4096 && text.len() > 3000, "{}", text.len());
    let shown = brief["lines"].as_array().expect("lines").len();
    assert_eq!(brief["more_lines"], 42 - shown);
    let text = brief["answer"].as_str().expect("text");
    assert!(
        text.contains("80% idle. the largest part") || text.contains("80% idle. nothing"),
        "{text}"
    );
    // A command line may be long.
    answer.push(format!(
        "next: why -- sh -c '{}'",
        "\u{65e5} ".repeat(5_000)
    ));
    let text = format!("{}\n", json::brief(&account, &answer));
    assert!(text.len() <= 4096 && text.contains("80% idle"), "{text}");
}

#[test]
fn what_was_held_back_and_what_is_tried_again_have_words() {
    let held_back = line("block-io", 900, &[(Culprit::HeldBack, 9)]);
    let held_back = account(vec![held_back]);
    let words = "100% of that went by before there were requests to a disk:";
    let text = said(&held_back);
    assert!(text.contains(words) && text.contains("(io.max)"), "{text}");
    let rows = table(&held_back);
    let words = "100% before there were requests to a disk";
    assert!(rows.contains(words), "{rows}");
    let mut tried = line("file-lock", 900, &[]);
    tried.is_retried = true;
    let words = "SQLite tries again by the clock; nobody was seen to have it locked";
    let text = said(&account(vec![tried]));
    assert!(text.contains(words), "{text}");
}

#[test]
fn programs_in_go_that_are_idle_may_have_requests_that_are_not() {
    let mut account = account(vec![line(ON_CPU, 100, &[])]);
    let words = "it runs Go:";
    assert!(!said(&account).contains(words));
    account.is_go = true;
    assert!(said(&account).contains(words));
    account.lifetime_ns *= 5;
    assert!(!said(&account).contains(words), "busy");
}

#[test]
fn who_is_not_remembered_makes_shares_least_ones() {
    let earlier = |value| (Culprit::Program(("[earlier]".into(), 0), None), value);
    let cc1 = (Culprit::Program(("cc1".into(), 9), None), 60);
    let both = account(vec![line(RUN_QUEUE, 90, &[cc1.clone(), earlier(40)])]);
    let text = said(&both);
    assert!(
        text.contains("cc1 9 ran for at least 60% of that"),
        "{text}"
    );
    let rows = table(&both);
    let words = "40% behind others, which are not remembered";
    assert!(rows.contains(words), "{rows}");
    let text = said(&account(vec![line(
        RUN_QUEUE,
        90,
        &[cc1.clone(), earlier(90)],
    )]));
    let words = "most of those that ran meanwhile are not known: cc1 9 ran for at least 40%";
    assert!(text.contains(words), "{text}");
    let text = said(&account(vec![line(RUN_QUEUE, 90, &[cc1])]));
    assert!(text.contains("cc1 9 ran for 100% of that"), "{text}");
}

#[test]
fn processes_of_one_name_are_one_culprit_where_they_come_first_together() {
    let process = |name: &str, pid, value| {
        let program = (name.into(), pid);
        (Culprit::Program(program, None), value)
    };
    let cc1 = [(11, 20), (12, 15), (13, 10)].map(|(pid, value)| process("cc1", pid, value));
    let make = process("make", 9, 30);
    let blames: Vec<_> = [make].into_iter().chain(cc1).collect();
    let text = said(&account(vec![line(RUN_QUEUE, 90, &blames)]));
    let words = "3 processes of cc1 ran for 60% of that";
    assert!(text.contains(words), "{text}");
    // Two are named.
    let text = said(&account(vec![line(RUN_QUEUE, 90, &blames[..3])]));
    assert!(text.contains("make 9 ran for 46% of that"), "{text}");
}

#[test]
fn a_program_is_one_culprit_however_many_functions_it_has() {
    let function = |name: &str| Culprit::Program(("db".into(), 9), Some(name.into()));
    let blames = ["f", "g", "h"].map(|name| (function(name), 15));
    let blames = [&blames[..], &[(Culprit::Interrupt, 55)]].concat();
    let text = said(&account(vec![line("pipe", 90, &blames)]));
    assert!(text.contains("an interrupt ended 55% of that"), "{text}");
    let text = said(&account(vec![line("pipe", 90, &blames[..3])]));
    assert!(text.contains("db 9 ended 100% of that in f"), "{text}");
    assert_eq!(
        command(&account(vec![line("pipe", 90, &blames[..3])])),
        "why -p 9 10"
    );
}

#[test]
fn estimates_have_neither_intervals_nor_counts() {
    let mut account = account(vec![line(ON_CPU, 900, &[(of_function("f"), 10)])]);
    account.lines.insert(1, line(LOST, 300, &[]));
    account.looked = Some(0.69);
    let text = said(&account);
    assert!(
        text.contains("15% lost or not seen, estimated: traced 69% of the time"),
        "{text}"
    );
    assert!(
        text.ends_with("f has 100% of that (of 10 samples only)"),
        "{text}"
    );
    account.looked = Some(0.3);
    let text = said(&account);
    assert!(text.contains("a guess: traced for 300 ms in all"), "{text}");
    assert!(!table(&account).contains(" 3 "), "{}", table(&account));
}

#[test]
fn a_quota_is_to_blame_for_waits_for_it() {
    let mut account = account(vec![line(THROTTLED, 900, &[])]);
    assert!(said(&account).contains("the group whose CPU quota it is has gone, or cannot be seen"));
    assert_eq!(command(&account), "profile -p 7 10");
    account.quotas.push(UsedUp {
        path: "/sys/fs/cgroup/web".into(),
        quota_ns: 20 * MS,
        period_ns: 100 * MS,
        periods: 24,
        used_up: 18,
        ..UsedUp::default()
    });
    let words =
        "the CPU quota of /sys/fs/cgroup/web: 20.0 ms per 100 ms, used up in 18 of 24 periods";
    assert!(said(&account).contains(words), "{}", said(&account));
}

#[test]
fn small_lines_are_one_and_a_residual_may_be_negative() {
    let naps = (0..50).map(|_| line(SLEEP, 3, &[]));
    let mut account = account(naps.chain([line("pipe", 90, &[])]).collect());
    account.lines.last_mut().expect("the residual").ns = -(2 * MS.cast_signed());
    let table = table(&account);
    assert_eq!(table.matches("sleep").count(), 12, "{table}");
    assert!(table.contains("39 more lines (-j has all)"), "{table}");
    assert!(table.contains("-2.00 ms  -0.1%"), "{table}");
}

#[test]
fn a_childs_own_time_goes_before_its_parents_wait() {
    let child = [(program("cc1", 9), 100)];
    let lines = || vec![line("wait", 90, &child), line("pipe", 60, &[])];
    let mut account = account(lines());
    assert!(said(&account).contains("60% (90.0 ms), was spent waiting for a child"));
    account.programs.push(("cc1".into(), 9));
    assert!(said(&account).contains("40% (60.0 ms), was spent waiting on pipes"));
    account.lines.retain(|line| line.kind != "pipe");
    assert!(said(&account).contains("100% (90.0 ms), was spent waiting for a child"));
}

/// A timer ended it, and whose child it was is not told; another process is one.
#[test]
fn a_wait_for_a_child_that_no_child_ended_goes_behind_other_processes() {
    let mut account = account(vec![
        line("wait", 90, &[(Culprit::Interrupt, 100)]),
        line("pipe", 60, &[]),
    ]);
    assert!(said(&account).contains("60% (90.0 ms), was spent waiting for a child"));
    account.programs.push(("cc1".into(), 9));
    assert!(said(&account).contains("40% (60.0 ms), was spent waiting on pipes"));
}
