//! Pages in windows of all sizes: high pictures scroll, phones show everything.

use serde_json::{Value, json};

use crate::browser::{STACKS, browse, number, said};
use crate::{Files, assert_has, flame};

/// 127 frames are higher than any window: the page opens where stacks begin, and follows keys and zooms to their ends.
#[test]
fn of_deep_stacks_the_callers_are_seen_first() {
    let files = Files::new();
    let deep: Vec<String> = (1..=127).map(|depth| format!("f{depth}")).collect();
    let deep = format!("{} 90\nf1;g 10\n", deep.join(";"));
    let steps = "
      var section = document.querySelector('section'), picture = document.querySelector('.picture');
      var isSeen = function (name) { var outer = picture.getBoundingClientRect(), inner = box(name).querySelector('rect').getBoundingClientRect();
        return inner.width > 0 && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1; };
      var seen = {opened: [isSeen('all'), isSeen('f1'), isSeen('f127')], high: picture.clientHeight, window: window.innerHeight};
      for (var step = 0; step < 128; step += 1) { press(section, KEY); }
      seen.walked = [isSeen('all'), isSeen('f127'), isSeen('f125')];
      for (step = 0; step < 64; step += 1) { press(section, BACK); }
      seen.back = isSeen('f63');
      press(section, 'Enter');
      seen.zoomed = [isSeen('f63'), isSeen('f62'), isSeen('f75')];
      press(section, 'Escape');
      seen.reset = [isSeen('all'), isSeen('f1')];
      return seen;";
    for (command, leafward, rootward) in [
        ("draw", "'ArrowUp'", "'ArrowDown'"),
        ("draw --icicle", "'ArrowDown'", "'ArrowUp'"),
    ] {
        let page = files.made(command, &deep, "deep.html");
        let steps = steps.replace("KEY", leafward).replace("BACK", rootward);
        let mut seen = browse(&page, false, "1000,800", &steps);
        let [high, window] = ["high", "window"].map(|field| number(&seen, field));
        let share = high / window;
        assert!(share > 0.5 && share < 0.9, "{high} of {window}");
        for field in ["high", "window"] {
            seen[field].take();
        }
        let expected = json!({
            "opened": [true, true, false], "high": null, "window": null, "walked": [false, true, true],
            "back": true, "zoomed": [true, true, true], "reset": [true, true],
        });
        assert_eq!(seen, expected, "{command}");
    }
}

/// Rows out of sight are counted at the edge that they are beyond; the counts follow scrolling and zooming.
#[test]
fn what_lies_beyond_an_edge_is_said_there() {
    let files = Files::new();
    let deep: Vec<String> = (1..=99).map(|depth| format!("f{depth}")).collect();
    let deep = format!("{} 90\nf1;g 10\n", deep.join(";"));
    let steps = "
      var picture = document.querySelector('.picture');
      var said = function () { return ['above', 'under'].map(function (edge) {
        var band = document.querySelector('.' + edge);
        return band.getBoundingClientRect().height ? +/[0-9]+/.exec(band.textContent)[0] : 0; }); };
      var scroll = function (edge) { click(document.querySelector('.' + edge + ' button')); picture.dispatchEvent(new Event('scroll')); };
      var seen = {rows: picture.clientHeight / 19, opened: said()};
      scroll(FAR);
      seen.on = said();
      for (var step = 0; step < 9; step += 1) { scroll(FAR); }
      seen.end = said();
      scroll(NEAR);
      seen.back = said();
      click(box('g'));
      seen.zoomed = said();
      return seen;";
    for (command, edges) in [
        ("draw", ["'above'", "'under'"]),
        ("draw --icicle", ["'under'", "'above'"]),
    ] {
        let out = files.made(command, &deep, "deep.html");
        let steps = steps.replace("FAR", edges[0]).replace("NEAR", edges[1]);
        let seen = browse(&out, false, "1000,800", &steps);
        // The far edge first.
        let (far, near) = if command == "draw" { (0, 1) } else { (1, 0) };
        let said = |when: &str| {
            let said = [far, near].map(|edge| seen[when][edge].as_f64());
            said.map(|rows| rows.unwrap_or_else(|| panic!("{when}: {seen}")))
        };
        let rows = seen["rows"].as_f64().expect("rows in sight");
        let is_rest = |hidden: f64| ((hidden + rows) - 100.0).abs() < 1.0;
        assert!(is_rest(said("opened")[0]), "{seen}");
        assert!(is_rest(said("on").iter().sum()), "{seen}");
        assert!(is_rest(said("end")[1]), "{seen}");
        assert!(is_rest(said("back").iter().sum()), "{seen}");
        let none = [said("opened")[1], said("end")[0]];
        assert_eq!((none, said("zoomed")), ([0.0; 2], [0.0; 2]), "{seen}");
        assert!(said("on")[1] > 15.0 && said("back")[0] > 15.0, "{seen}");
    }
}

/// Chromium's windows are no narrower than 500 pixels, frames are.
pub(crate) fn browse_phone(page: &str, steps: &str) -> Value {
    let inner = std::fs::read_to_string(page).expect("a page");
    let quoted = inner.replace('&', "&amp;").replace('"', "&quot;");
    let outer = format!(
        "<!DOCTYPE html><meta charset=utf-8><body style='margin:0'>\
         <iframe width=390 height=844 style='border:0' srcdoc=\"{quoted}\"></iframe></body>"
    );
    let files = Files::new();
    let outer = files.file("outer.html", outer);
    let steps = format!(
        "var frame = document.querySelector('iframe'), inner = frame.contentDocument, win = frame.contentWindow; {steps}"
    );
    browse(&outer, false, "500,900", &steps)
}

const PHONE: &str = "
  var boxes = Array.from(inner.querySelectorAll('.boxes > g'));
  var wide = function (name) { var g = boxes.find(function (g) { return g.querySelector('title').textContent === name; });
    return g.querySelector('rect').getBoundingClientRect().width; };
  return {page: inner.documentElement.scrollWidth, window: win.innerWidth, all: wide('all'),
    reading: inner.querySelector('.reading').textContent,
    table: inner.querySelector('table, pre').getBoundingClientRect().right,
    row: inner.querySelector('.boxes rect').getBoundingClientRect().height};";

fn fits_a_phone(seen: &Value) {
    let number = |field| number(seen, field);
    assert!((number("window") - 390.0).abs() < 1.0, "{seen}");
    assert!(number("page").max(number("table")) <= 390.0, "{seen}");
    assert!((340.0..390.0).contains(&number("all")), "{seen}");
    assert!(number("row") >= 17.0, "{seen}");
    let reading = said(seen, "reading");
    let end = "Left to right is alphabetical, not time.";
    assert!(reading.ends_with(end), "{seen}");
}

#[test]
fn a_phone_shows_all_of_the_page_without_scrolling_sideways() {
    let page = Files::new();
    fits_a_phone(&browse_phone(&page.made("draw", STACKS, "a.html"), PHONE));
}

#[test]
fn the_page_of_a_difference_says_what_changed_and_fits_a_phone() {
    let files = Files::new();
    let base = files.file("base.folded", STACKS);
    let new = files.file("new.folded", STACKS.replace("lex 300", "lex 500"));
    let out = files.path("diff.html");
    flame(format!("diff {base} {new} -o {out}"), "").ok();
    fits_a_phone(&browse_phone(&out, PHONE));
    let steps = "
      var fill = function (name) { return box(name).querySelector('rect').getAttribute('fill'); };
      return {table: document.querySelector('pre').textContent, lex: fill('lex'), run: fill('run'), all: fill('all'),
        label: box('lex').querySelector('text').textContent, pwned: window.pwned === undefined,
        images: document.querySelectorAll('img').length};";
    let seen = browse(&out, false, "1000,800", steps);
    assert_has(said(&seen, "table"), ["lex grew", "\n"]);
    assert!(said(&seen, "label").starts_with("▲ lex"), "{seen}");
    let is_told = seen["lex"] != seen["all"] && seen["run"] != seen["lex"];
    assert!(is_told, "{seen}");
    assert_eq!(seen["pwned"], true, "{seen}");
    assert_eq!(seen["images"], 0, "{seen}");
}
