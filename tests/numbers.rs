//! Numbers in documents are those that `make bench` measured.

use super::read;

/// A page's words behind its figure, the row of bench/results.md that this is of, and how many of the row's units make one of the page's.
const MEASURED: [Measured; 3] = [
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

/// A figure of a page.
type Measured = (&'static str, &'static str, &'static str, f64);

/// The figure as its page has it, and the ratio to the other tool's, by bench/results.md.
fn figure_of((tool, _, row, divisor): Measured, results: &str) -> (String, f64) {
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
    (ours, ratio)
}

#[test]
fn numbers_of_manuals_are_those_that_were_measured() {
    let results = read("bench/results.md");
    for measured in MEASURED {
        let (tool, words, ..) = measured;
        let (ours, ratio) = figure_of(measured, &results);
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
    assert_eq!(table(&read("docs/numbers.md")), table(&results));
}

#[test]
fn memory_in_flames_manual_is_what_was_measured() {
    let measured = read("bench/files.md");
    let peak = |heading: &str, program: &str| {
        let mut sections = measured.split("\n## ");
        let section = sections.find(|text| text.starts_with(heading));
        let mut rows = section.expect(heading).lines();
        let row = rows.find(|row| row.starts_with(&format!("| `{program}` |")));
        let peak = row.expect(program).split('|').nth(4);
        peak.expect("a peak").trim().to_owned()
    };
    let [short, long] = [
        peak("Folded lines to SVG, generated, 1001 MB", "flame draw"),
        peak(
            "Memory by length: folded lines of the same stacks, four times as many, 4005 MB",
            "flame draw again",
        ),
    ];
    let page = read("man/flame.1").replace('\n', " ");
    let figure = format!("takes {short} MiB, 4 GB of the same {long} MiB (bench/files.md)");
    assert!(page.contains(&figure), "flame.1: no {figure}");
}

#[test]
fn numbers_of_the_readme_are_those_that_were_measured() {
    let results = table(&read("bench/results.md"));
    let of_a_process = results
        .iter()
        .skip_while(|row| !row.contains("where threads of one process wait"));
    let cells = |row: &String| {
        row.split('|')
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let rows: Vec<_> = of_a_process.take(2).map(cells).collect();
    let [ours, theirs] = &rows[..] else {
        panic!("{rows:?}")
    };
    assert!(
        ours[2].contains("**`offcputime`**") && theirs[2] == "libbpf-tools `offcputime`",
        "{rows:?}"
    );
    let ns: u64 = theirs[3].parse().expect("a number");
    let seen: f64 = theirs[7].trim_end_matches(" %").parse().expect("a share");
    let row = format!(
        "by reason; {} ns an event | libbpf-tools `offcputime`: {},{:03} ns, and {seen:.0} % of the time in its report |",
        ours[3],
        ns / 1000,
        ns % 1000,
    );
    assert!(read("README.md").contains(&row), "README.md: no {row}");
}

/// Rows of the table of questions.
fn table(text: &str) -> Vec<String> {
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| question"));
    rows.take_while(|line| line.starts_with('|'))
        .map(str::to_owned)
        .collect()
}

/// Tools that the bench does not measure: their pages have figures of others, or none.
const ALONE: [&str; 2] = ["syscount", "why"];

/// Figures that a tool's page may have, ns.
fn known(tool: &str, results: &str) -> Vec<f64> {
    let rows = table(results).into_iter();
    let rows = rows.filter(|row| row.contains(&format!("**`{tool}`**")));
    let of_events = rows.filter_map(|row| row.split('|').nth(3)?.trim().parse::<f64>().ok());
    let of_page = MEASURED.into_iter().filter(|measured| measured.0 == tool);
    let of_page = of_page.map(|measured| {
        let (ours, _) = figure_of(measured, results);
        ours.parse::<f64>().expect("a number") * measured.3
    });
    of_events.chain(of_page).collect()
}

#[test]
fn manuals_have_no_other_costs_than_those_that_were_measured() {
    let results = read("bench/results.md");
    for (tool, _) in super::TOOLS
        .iter()
        .filter(|(tool, _)| !ALONE.contains(tool))
    {
        let page = read(&format!("man/{tool}.8"));
        let section = page.split("\n.SH OVERHEAD\n").nth(1).expect("a section");
        let first = section.split("\n.PP\n").next().unwrap_or_default();
        let words: Vec<&str> = first.split_whitespace().collect();
        for pair in words.windows(2) {
            let ns = match pair[1].trim_end_matches([',', '.', ';', ')']) {
                "ns" => 1.0,
                "us" => 1000.0,
                _ => continue,
            };
            let figure = pair[0].replace(',', "").parse::<f64>();
            let figure = ns * figure.unwrap_or_else(|_| panic!("{tool}.8: {pair:?}"));
            let mut known = known(tool, &results).into_iter();
            assert!(
                known.any(|known| (known - figure).abs() < 0.5),
                "{tool}.8: {} {} is not in bench/results.md",
                pair[0],
                pair[1]
            );
        }
    }
}
