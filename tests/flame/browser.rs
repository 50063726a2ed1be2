//! Pictures in a real browser: clicks zoom, search finds, names that would run script stay text.
//!
//! A script of the test's own is put behind the page; it clicks and types as a user does, and leaves what it saw in a
//! `<pre>` that the browser prints with the rest of the page.

use std::process::Command;

use serde_json::{Value, json};

use crate::{Files, Run};

pub(crate) const STACKS: &str = "\
app;main;parse;lex 300
app;main;parse;reduce_[i] 150
app;main;run;read;vfs_read_[k] 250
app;main;run;<img src=x onerror=window.pwned=1></title></svg><script>window.pwned=1</script>\"'&amp; 200
app;main;run;step_[j] 100
";

/// Runs steps in the page at a window size; what they return comes back as JSON.
pub(crate) fn browse(page: &str, is_svg: bool, size: &str, steps: &str) -> Value {
    let files = Files::new();
    let drawn = std::fs::read_to_string(page).expect("a page");
    let html = if is_svg {
        // An SVG file as browsers show it, with the test beside it.
        let body = drawn.split_once("?>").expect("a declaration").1;
        assert!(body.trim_end().ends_with("</svg>"));
        format!("<!DOCTYPE html><meta charset=utf-8><body style='margin:0'>{body}</body>")
    } else {
        drawn
    };
    let test = format!(
        "<script>window.addEventListener('load', function () {{
           var click = function (e) {{ e.dispatchEvent(new MouseEvent('click', {{bubbles: true}})); }};
           var type = function (e, text) {{ e.value = text; e.dispatchEvent(new Event('input', {{bubbles: true}})); }};
           var press = function (e, key) {{ e.dispatchEvent(new KeyboardEvent('keydown', {{key: key, bubbles: true}})); }};
           var box = function (name) {{
             return Array.from(document.querySelectorAll('.boxes > g')).find(function (g) {{
               return g.querySelector('title').textContent === name; }}); }};
           var width = function (name) {{ var g = box(name); return g.style.display === 'none' ? 0 : Math.round(g.querySelector('rect').getBoundingClientRect().width); }};
           var code = function (c) {{ return '\\\\u' + ('000' + c.charCodeAt(0).toString(16)).slice(-4); }};
           var seen; try {{ seen = (function () {{ {steps} }})(); }} catch (error) {{ seen = String(error); }}
           var pre = document.createElement('pre'); pre.id = 'seen'; pre.textContent = JSON.stringify(seen).replace(/[^ -~]|[<>&]/g, code);
           document.body.appendChild(pre);
         }});</script>"
    );
    let path = files.file("page.html", html + &test);
    let profile = files.path("profile");
    let options =
        "120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom";
    let output = Command::new("timeout")
        .args(options.split(' '))
        .arg(format!("--window-size={size}"))
        .arg(format!("--user-data-dir={profile}"))
        .arg(format!("file://{path}"))
        .output();
    let run = Run::of(output.expect("chromium is installed (setup/deps test)"));
    let seen = run.stdout.rsplit_once("<pre id=\"seen\">");
    let seen = seen.and_then(|(_, rest)| rest.split('<').next());
    let seen = seen.unwrap_or_else(|| panic!("no result: {} {}", run.stdout, run.stderr));
    serde_json::from_str(seen).unwrap_or_else(|error| panic!("{error}: {seen}"))
}

/// Text that is there.
pub(crate) fn said<'a>(seen: &'a Value, field: &str) -> &'a str {
    let said = seen[field].as_str();
    said.unwrap_or_else(|| panic!("no text {field}: {seen}"))
}

/// A number that is there.
pub(crate) fn number(seen: &Value, field: &str) -> f64 {
    let number = seen[field].as_f64();
    number.unwrap_or_else(|| panic!("no number {field}: {seen}"))
}

#[test]
fn clicks_zoom_and_reset() {
    let files = Files::new();
    let steps = "
      var all = width('all'), before = width('parse');
      click(box('parse').querySelector('rect'));
      var zoomed = [width('parse'), width('main'), width('lex'), width('run')];
      click(document.querySelector('.reset'));
      var after = width('parse');
      return {all: all, before: before, zoomed: zoomed, after: after};";
    let seen = browse(
        &files.made("draw", STACKS, "a.html"),
        false,
        "1000,800",
        steps,
    );
    let all = number(&seen, "all");
    let near = |value: &Value, share: f64| {
        let width = value.as_f64().unwrap_or_else(|| panic!("{seen}"));
        let off = (width - share * all).abs();
        assert!(off < 2.0, "{width} of {all}: {seen}");
    };
    let is_used = (900.0..1000.0).contains(&all);
    assert!(is_used, "the page's width is used: {seen}");
    near(&seen["before"], 0.45);
    near(&seen["zoomed"][0], 1.0);
    near(&seen["zoomed"][1], 1.0);
    near(&seen["zoomed"][2], 300.0 / 450.0);
    near(&seen["zoomed"][3], 0.0);
    near(&seen["after"], 0.45);
}

/// From the root to a leaf, along a row, zoomed by Enter, back by Escape; a search is ended before a zoom is.
#[test]
fn keys_walk_zoom_search_and_reset() {
    let files = Files::new();
    let steps = "
      var at = function () { var g = document.querySelector('.boxes > g.selected'); return g ? g.querySelector('title').textContent : ''; };
      var details = document.querySelector('.details'), input = document.querySelector('.pattern');
      var from = FROM, seen = [];
      var go = function (key) { press(from, key); seen.push(at()); };
      go('ArrowUp'); go('ArrowUp'); go('ArrowUp'); go('ArrowUp'); go('ArrowUp'); go('ArrowUp'); go('ArrowRight'); go('ArrowDown');
      var said = details ? details.textContent : '';
      press(from, 'Enter');
      var zoomed = [width('parse'), width('all')];
      press(from, '/');
      var focused = input ? document.activeElement === input : true;
      if (input) { type(input, 'lex'); }
      var matched = document.querySelectorAll('.matched').length;
      press(input || from, 'Escape');
      var after = [document.querySelectorAll('.matched').length, width('parse'), input ? input.value : ''];
      press(from, 'Escape');
      return {seen: seen, said: said, zoomed: zoomed, focused: focused, matched: matched, after: after, reset: width('parse')};";
    let root = "document.querySelector('section, svg')";
    for (name, is_svg, from) in [
        ("a.html", false, root),
        ("a.html", false, "document.body"),
        ("a.svg", true, "window"),
    ] {
        let prompt = "window.prompt = function () { return null; };";
        let steps = format!("{prompt}{}", steps.replace("FROM", from));
        let seen = browse(
            &files.made("draw", STACKS, name),
            is_svg,
            "1000,800",
            &steps,
        );
        if is_svg {
            // Beside the test it is no document of its own and hears keys where it has the focus.
            assert!(seen["seen"].is_array(), "{seen}");
            continue;
        }
        // Each leafward step goes to the first box on top; a leaf has none.
        let walk = [
            "all", "app", "main", "parse", "lex", "lex", "reduce", "parse",
        ];
        assert_eq!(seen["seen"], json!(walk), "{from}: {seen}");
        let text = said(&seen, "said");
        assert!(text.starts_with("parse — 450, 45.0 % of all"), "{text}");
        let zoomed = &seen["zoomed"];
        assert_eq!(zoomed[0], zoomed[1], "{from}: {seen}");
        assert_eq!(seen["focused"], true, "{from}: {seen}");
        assert_eq!(seen["matched"], 1, "{from}: {seen}");
        // Still zoomed, no longer searched.
        assert_eq!(seen["after"], json!([0, zoomed[0], ""]), "{from}: {seen}");
        let all = zoomed[1].as_f64().expect("a width");
        let off = number(&seen, "reset") - 0.45 * all;
        assert!(off.abs() < 2.0, "{from}: {seen}");
    }
}

#[test]
fn search_says_the_matched_share_and_counts_nothing_twice() {
    let files = Files::new();
    let steps = "
      var input = document.querySelector('.pattern'), found = document.querySelector('.found');
      var said = function (text) { type(input, text); return found.textContent; };
      var texts = [said('lex|PARSE'), said('^(parse|lex)$'), said('nobody'), said('('), said('')];
      click(box('parse').querySelector('rect'));
      texts.push(said('lex'));
      return texts.concat(document.querySelectorAll('.matched').length);";
    let seen = browse(
        &files.made("draw", STACKS, "a.html"),
        false,
        "1000,800",
        steps,
    );
    // An upper-case letter means upper case, and lex on parse counts once.
    for (at, found) in [
        (0, "matched: 30.0 % of all"),
        (1, "matched: 45.0 % of all"),
        (2, "nothing matches"),
        (4, ""),
        (5, "matched: 30.0 % of all, 66.7 % of the zoomed box"),
    ] {
        assert_eq!(seen[at], found, "{seen}");
    }
    assert_eq!(seen[6], 1);
}

#[test]
fn hostile_names_stay_text() {
    let files = Files::new();
    let steps = "
      var hostile = Array.from(document.querySelectorAll('.boxes title')).map(function (t) { return t.textContent; })
        .find(function (t) { return t.indexOf('onerror') > 0; });
      click(box(hostile).querySelector('rect'));
      return {pwned: window.pwned === undefined, images: document.querySelectorAll('img').length,
        scripts: document.querySelectorAll('script').length, name: hostile,
        label: box(hostile).querySelector('text').textContent};";
    for (name, is_svg) in [("a.html", false), ("a.svg", true)] {
        let seen = browse(&files.made("draw", STACKS, name), is_svg, "1000,800", steps);
        for (field, expected) in [
            ("pwned", json!(true)),
            ("images", json!(0)),
            ("scripts", json!(2)),
        ] {
            assert_eq!(seen[field], expected, "{name}: {seen}");
        }
        let full = "<img src=x onerror=window.pwned=1></title></svg><script>window.pwned=1</script>\"'&amp";
        for (field, start) in [("name", full), ("label", "<img src=x")] {
            assert!(said(&seen, field).starts_with(start), "{name}: {seen}");
        }
    }
}

#[test]
fn an_svg_file_zooms_by_itself_and_fits_the_window() {
    let files = Files::new();
    let path = files.made("draw --icicle", STACKS, "a.svg");
    let steps = "
      var top = function (name) { return box(name).querySelector('rect').getBoundingClientRect().top; };
      var down = top('lex') > top('parse') && top('parse') > top('all');
      var before = width('run');
      click(box('run').querySelector('rect'));
      return {down: down, before: before, after: width('run'), all: width('all')};";
    let seen = browse(&path, true, "1000,800", steps);
    assert_eq!(seen["down"], true, "{seen}");
    assert_eq!(seen["after"], seen["all"], "{seen}");
    assert!(seen["before"].as_f64() < seen["after"].as_f64(), "{seen}");
}
