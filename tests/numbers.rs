//! Numbers in documents are those that `make bench` measured.

use super::read;

/// A page's words behind its figure, the row of bench/results.md that this is of, and how many of the row's units make one of the page's.
const MEASURED: [(&str, &str, &str, f64); 3] = [
    (
        "offcputime",
        "us per switch with both stacks, half of",
        "added ns per context switch of the load",
        1000.0,
    ),
    (
        "runqlat",
        "ns per program run, two thirds of",
        "BPF ns per program run",
        1.0,
    ),
    (
        "biolatency",
        "us for each request, two thirds of",
        "BPF ns per I/O",
        1000.0,
    ),
];

#[test]
fn numbers_of_manuals_are_those_that_were_measured() {
    let results = read("bench/results.md");
    for (tool, words, row, divisor) in MEASURED {
        let section = results
            .split("\n## ")
            .find(|text| text.lines().next() == Some(tool));
        let mut rows = section.expect("a section").lines();
        let row = rows.find(|line| line.split('|').nth(1).map(str::trim) == Some(row));
        let medians = row.expect("a row").split("**").skip(1).step_by(2);
        let medians: Vec<f64> = medians
            .map(|median| median.parse().expect("a number"))
            .collect();
        let [ours, _, ratio] = medians[..] else {
            panic!("{tool}: {medians:?}")
        };
        let ours = match divisor {
            1.0 => format!("{ours}"),
            divisor => format!("{:.2}", ours / divisor),
        };
        let share = [
            ("a third", 1.0 / 3.0),
            ("half", 0.5),
            ("two thirds", 2.0 / 3.0),
        ];
        let (share, _) = share
            .into_iter()
            .find(|(_, share)| (share - ratio).abs() < 0.05)
            .unwrap_or_else(|| panic!("{tool}: no word for {ratio} of theirs"));
        let page = read(&format!("man/{tool}.8"))
            .replace('\n', " ")
            .replace('\\', "");
        let figure = format!("{ours} {words} libbpf-tools' {tool} (bench/results.md)");
        assert!(
            words.contains(share) && page.contains(&figure),
            "{tool}.8: no {figure}, {share}"
        );
        assert_eq!(page.matches("(bench/results.md)").count(), 1, "{tool}.8");
    }
    let table = |text: &str| -> Vec<String> {
        let rows = text
            .lines()
            .skip_while(|line| !line.starts_with("| question"));
        rows.take_while(|line| line.starts_with('|'))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(table(&read("docs/numbers.md")), table(&results));
}
