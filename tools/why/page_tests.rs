//! Pages of accounts that are made up.

use super::page as page_of;
use crate::offcputime::SLEEP;
use crate::why::line::Culprit;
use crate::why::sentences;
use crate::why::tests::{MS, account as made, line, program, said};

#[test]
fn a_page_has_each_line_as_a_bar_with_its_culprits_and_idleness_has_no_length() {
    let keeper = [(program("keeper", 9), 60), (Culprit::Interrupt, 40)];
    let account = made(vec![line("futex", 300, &keeper), line(SLEEP, 200, &[])]);
    let answer = sentences::sentences(&account);
    let next = "next: lockstat -p 7 10".to_owned();
    let page = page_of(&account, &[answer.clone(), vec![next.clone()]].concat());
    assert_eq!(page.sentences.join(" "), said(&account));
    assert!(
        page.sentences
            .iter()
            .all(|sentence| !sentence.starts_with(' '))
    );
    assert!(
        page.sentences.len() < answer.len(),
        "lines are no sentences: {answer:?}"
    );
    assert_eq!(page.next, next);
    let bars = page.bars.iter();
    let bars: Vec<_> = bars
        .map(|bar| (&*bar.label, bar.value, bar.is_rest))
        .collect();
    let expected = [
        ("futex get", 300 * MS, false),
        ("sleep", 200 * MS, true),
        ("idle: nothing to do", 0, true),
        ("not explained", 0, true),
    ];
    assert_eq!(bars, expected);
    let first = &page.bars[0];
    assert_eq!(first.amount, "300 ms \u{b7} 15.0%");
    assert_eq!(first.figures, "3 waits, 100 ms on average");
    assert_eq!(first.remarks.len(), 2, "{first:?}");

    let mut small = vec![line("futex", 300, &[]), line("pipe", 1, &[])];
    small[1].ns = 200_000;
    let page = page_of(&made(small), &[]);
    let last = page.bars.last().expect("a bar");
    assert_eq!(
        (page.bars.len(), &*last.label),
        (4, "1 more line (-j has all)")
    );

    let naps = (0..50).map(|_| line(SLEEP, 3, &[]));
    let page = page_of(&made(naps.collect()), &[]);
    assert_eq!(page.bars.len(), 41);
    assert_eq!(page.bars[40].label, "12 more lines (-j has all)");
}
