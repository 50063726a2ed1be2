//! Pages with an account above the pictures, in a browser: `why -o why.html`.

use profile::draw::{Account, Bar, Piece, Strip, Timeline};
use profile::frame::{Frame, FrameKind};
use profile::model::{Profile, Sample, ValueType};
use profile::write::{Format, Meta, write};
use serde_json::Value;

use crate::Files;
use crate::browser::{browse, number};
use crate::windows::browse_phone;

/// A name as an attacker gives it, as long as C++ makes them, without a blank to break at.
fn hostile() -> String {
    let attack =
        "<img src=x onerror=window.pwned=1></summary><script>window.pwned=1</script>\"'&amp;";
    attack.to_owned() + &"std::vector<std::pair<unsigned_long,std::basic_string".repeat(9)
}

/// Three lines of an account, of which the second is a quarter of the first, and the third has no length.
fn page(files: &Files) -> String {
    let frame = Frame {
        name: hostile().into(),
        kind: FrameKind::User,
        inlined: false,
        module: None,
        address: 1,
        line: None,
    };
    let profile = Profile {
        tool: "why",
        values: vec![ValueType {
            name: "time",
            unit: "ns",
        }],
        samples: vec![Sample {
            user: [frame].into(),
            count: 1,
            values: vec![1_000_000],
            ..Sample::default()
        }],
        duration_ns: 1_000_000,
    };
    let bar = |value, stack: &[String]| Bar {
        label: hostile(),
        amount: "1.00 s \u{b7} 10.0%".into(),
        figures: "12 waits".into(),
        value,
        is_rest: value == 0,
        remarks: stack.to_vec(),
        stack: stack.to_vec(),
    };
    let meta = Meta {
        account: Account {
            sentences: vec!["app 7 loses most".into(), hostile()],
            next: hostile(),
            bars: vec![bar(400, &[hostile()]), bar(100, &[hostile()]), bar(0, &[])],
            timeline: Timeline {
                edges: [hostile(), hostile()],
                strips: vec![strip()],
            },
        },
        ..Meta::default()
    };
    let mut out = Vec::new();
    write(&profile, Format::Html, &meta, &mut out).expect("a vector");
    files.file("why.html", String::from_utf8(out).expect("text"))
}

/// Strip with a piece in the middle, all of its words hostile.
fn strip() -> Strip {
    Strip {
        label: hostile(),
        amount: hostile(),
        pieces: vec![Piece {
            span: [0.25, 0.75],
            height: 0.5,
            words: hostile(),
        }],
        is_events: false,
    }
}

/// Places of everything in `inner`, a document, and what a click on a line opens.
const LOOK: &str = "
  var bars = Array.from(inner.querySelectorAll('.bar'));
  var wide = function (bar) { var i = bar.querySelector('i'); return i ? i.getBoundingClientRect().width : 0; };
  var shown = function () { return bars.map(function (bar) { var list = bar.querySelector('ol'); return list ? list.checkVisibility() : false; }); };
  var before = shown();
  bars[0].querySelector('summary').click();
  return {before: before, after: shown(), widths: bars.map(wide), lines: bars.length,
    first: inner.querySelector('.said').textContent, page: inner.documentElement.scrollWidth,
    right: Math.max.apply(null, Array.from(inner.querySelectorAll('.account *')).map(function (e) { return e.getBoundingClientRect().right; })),
    images: inner.querySelectorAll('img').length, pwned: inner.defaultView.pwned === undefined && window.pwned === undefined,
    pictures: inner.querySelectorAll('svg').length,
    strip: ['.timeline svg', '.timeline rect'].map(function (what) {
      var place = inner.querySelector(what).getBoundingClientRect(); return [place.width, place.height]; })};";

fn holds(seen: &Value, width: f64) {
    assert_eq!(
        seen["before"],
        serde_json::json!([false, false, false]),
        "{seen}"
    );
    assert_eq!(
        seen["after"],
        serde_json::json!([true, false, false]),
        "{seen}"
    );
    let widths = &seen["widths"];
    let [first, second, third] = [0, 1, 2].map(|at| widths[at].as_f64().expect("a width"));
    assert!(
        (first / second - 4.0).abs() < 0.05 && third == 0.0,
        "{seen}"
    );
    assert_eq!(seen["first"], "app 7 loses most");
    assert!(
        number(seen, "page") <= width && number(seen, "right") <= width,
        "{seen}"
    );
    assert_eq!(
        (&seen["images"], &seen["pwned"]),
        (&0.into(), &true.into()),
        "{seen}"
    );
    assert_eq!(seen["pictures"], 3, "{seen}");
    // The piece has half of the window, and of the height.
    for side in [0, 1] {
        let [whole, piece] = [0, 1].map(|at| seen["strip"][at][side].as_f64().expect("a length"));
        assert!((piece / whole - 0.5).abs() < 0.05, "{seen}");
    }
}

#[test]
fn lines_open_into_their_stacks_and_their_lengths_are_to_scale() {
    let files = Files::new();
    let steps = format!("var inner = document; {LOOK}");
    holds(&browse(&page(&files), false, "1000,800", &steps), 1000.0);
}

#[test]
fn a_phone_shows_all_of_an_account_without_scrolling_sideways() {
    let files = Files::new();
    holds(&browse_phone(&page(&files), LOOK), 390.0);
}
