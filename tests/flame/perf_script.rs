//! Text of `perf script` as its options and bad luck shape it.

use crate::{assert_has, flame};

/// Stacks of two kinds of events, without times.
const TIMELESS: &str = "\
app  7/8     250000 cpu-clock:u: \n\t401136 main+0x12 (/bin/app)\n\t7f00 [unknown] (/lib/a.so)\n
app  7/8          1 page-faults: \n\t401200 fault+0x0 (/bin/app)\n
app  7/8     250000 cpu-clock:u: \n\t401136 main+0x12 (/bin/app)\n\t7f00 [unknown] (/lib/a.so)\n
";

#[test]
fn events_without_times_are_counted() {
    let run = flame("merge -", TIMELESS);
    assert_eq!(run.stdout, "app;[a.so];main 2\n");
    let said = "flame: stdin: shows cpu-clock:u; --event NAME shows another: page-faults (1)\n";
    assert_eq!(run.fails(0), said);
    let other = flame("merge - --event page-faults", TIMELESS);
    assert_eq!(other.stdout, "app;fault 1\n");
    assert_eq!(other.fails(0), "");
    for (args, said) in [
        (
            "merge - --event cycles",
            "has no event cycles; it has cpu-clock:u, page-faults",
        ),
        (
            "merge - --from 1",
            "its events have no times to choose from",
        ),
    ] {
        assert_has(&flame(args, TIMELESS).fails(1), [said]);
    }
    let said = flame("merge - --event cycles", "a;b 1\n").fails(1);
    assert_has(
        &said,
        ["has no events to choose from; only perf script text has them"],
    );
}

/// `perf script -F comm,pid,tid,time,ip`, which FlameGraph's stackcollapse-perf.pl gives no frames.
#[test]
fn frames_without_names_are_addresses() {
    let event = "app 7/8  1.5: \n\tffffffff821c7894\n\t          401136\n\n";
    let run = flame("merge -", event.repeat(2));
    assert_eq!(run.stdout, "app;401136;ffffffff821c7894_[k] 2\n");
    assert_eq!(run.fails(0), "");
    // A damaged event costs itself alone.
    let damaged = ["app 7/x \n\t401136 f\n\n", &event.repeat(2)].concat();
    let run = flame("merge -", damaged);
    assert_eq!(run.stdout, "app;401136;ffffffff821c7894_[k] 2\n");
    assert_has(&run.fails(0), ["1 malformed line"]);
}

/// Lines as `perf script` prints them with `-F` and these fields.
#[test]
fn events_without_names_are_counted() {
    let stack = "\t 401136 f\n\t 401200 main\n\n";
    for (fields, head) in [
        ("comm,pid,tid,time,ip,sym", "my app 7/8  1627.711322: \n"),
        (
            "comm,tid,time,period,ip,sym",
            "my app 8  1627.711322:  250000 \n",
        ),
        ("comm,pid,tid,ip,sym", "my app 7/8 \n"),
    ] {
        let run = flame("merge -", [head, stack].concat().repeat(3));
        assert_eq!(run.stdout, "my app;main;f 3\n", "{fields}");
        assert_eq!(run.fails(0), "", "{fields}");
    }
    let flat = "my app 7/8  1.5:      401136 f\nmy app 7/8  1.6:   401200 [unknown]\n";
    let run = flame("merge -", flat);
    assert_eq!(run.stdout, "my app;[unknown] 1\nmy app;f 1\n");
    let late = [("my app 7/8 1.0: \n", stack), ("my app 7/8 9.5: \n", stack)];
    let late = late.map(|(head, stack)| [head, stack].concat()).concat();
    assert_eq!(flame("merge - --from 5", late).ok(), "my app;main;f 1\n");
}

#[test]
fn a_malformed_line_costs_its_event_and_is_told() {
    let event = "app 7/8 [000] 1.5: 100 cpu-clock: \n\t401136 main+0x12 (/bin/app)\n";
    let text = [
        event,
        "\n",
        event,
        "lost its way\n\t12 g (/bin/app)\n\n",
        event,
    ]
    .concat();
    let run = flame("merge -", &text);
    assert_eq!(run.stdout, "app;main 2\n");
    let said = "flame: stdin: 1 malformed line left out, each with its event; \
                line 6 (byte 129): neither an event nor a line of its stack: lost its way";
    assert_has(&run.fails(0), [said]);
}
