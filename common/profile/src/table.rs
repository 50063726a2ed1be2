//! Tables for people: titles in capitals over rows of cells. A row is one line, and no line ends in blanks.
//!
//! A column has a least width, so that the tables of consecutive intervals look alike; a wider cell widens it. The last one, if
//! aligned to the left, takes whatever is left of a line.

use std::io::{self, Write};
use std::iter::{once, repeat};
use std::mem::take;

use tabled::builder::Builder;
use tabled::grid::dimension::PeekableGridDimension;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style as Borders, Width};

use crate::escape::terminal;
use crate::style::Style;
use crate::text;

/// Layout of the cells under a title.
#[derive(Clone, Debug)]
pub struct Column {
    title: String,
    width: usize,
    is_left: bool,
    yields: bool,
    /// Blanks before it, unless it is the first.
    gap: Option<usize>,
}

impl Column {
    /// Text: begins where its title does; at least `width` columns of the terminal wide.
    pub fn left(title: impl Into<String>, width: usize) -> Self {
        Self {
            title: inert(title.into()),
            width,
            is_left: true,
            yields: false,
            gap: None,
        }
    }

    /// Numbers: end where their title does; at least `width` columns of the terminal wide.
    pub fn right(title: impl Into<String>, width: usize) -> Self {
        Self {
            is_left: false,
            ..Self::left(title, width)
        }
    }

    /// Blanks before it. Else it is one, or two where numbers and text would touch.
    #[must_use]
    pub fn gap(self, blanks: usize) -> Self {
        Self {
            gap: Some(blanks),
            ..self
        }
    }

    /// Gives way: where rows would be wider than the terminal its cells are cut, down to a few columns.
    #[must_use]
    pub fn yielding(self) -> Self {
        Self {
            yields: true,
            ..self
        }
    }

    fn gap_behind(&self, before: Option<&Self>) -> usize {
        match (before, self.gap) {
            (None, _) => 0,
            (Some(_), Some(gap)) => gap,
            (Some(before), None) => 1 + usize::from(self.is_left && !before.is_left),
        }
    }
}

/// Makes the last cell of a row of the columns that are left for it.
type Last<'a> = Box<dyn FnOnce(usize) -> String + 'a>;

/// A table that is being filled.
pub struct Table<'a> {
    /// Those that have a width.
    columns: Vec<Column>,
    /// The last one if it is aligned to the left.
    open: Option<Column>,
    rows: Vec<Vec<String>>,
    last: Vec<Last<'a>>,
}

impl<'a> Table<'a> {
    /// An empty one.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        let mut columns = columns.into();
        let open = columns.pop_if(|last| last.is_left);
        Self {
            columns,
            open,
            rows: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Adds a row of one cell a column; those that miss at the end are empty. Cells may carry [`Style`]'s sequences, which have
    /// no width; other control characters are shown escaped.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let mut cells = cells.into();
        let last = cells.get_mut(self.columns.len()).map(take);
        self.fitted(cells, |_| last.unwrap_or_default());
    }

    /// Adds a row whose last cell is made when it is known how many columns of the terminal are left for it. The last column has
    /// to be one that is aligned to the left.
    pub fn fitted(
        &mut self,
        cells: impl Into<Vec<String>>,
        last: impl FnOnce(usize) -> String + 'a,
    ) {
        let mut cells = cells.into();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells.into_iter().map(inert).collect());
        self.last.push(Box::new(last));
    }

    /// Lines without their ends: that of the titles, then a line a row. `width` is the terminal's; it binds what
    /// [`Self::fitted`] makes, and columns that are [`Column::yielding`].
    pub fn lines(self, width: usize) -> (String, Vec<String>) {
        let gap = self
            .open
            .as_ref()
            .map_or(0, |open| open.gap_behind(self.columns.last()));
        let (heads, used) = lay_out(&self.columns, self.rows, width);
        let room = width.saturating_sub(used + gap);
        let title = self.open.map_or_else(String::new, |open| open.title);
        let last: Last<'_> = Box::new(|_| title);
        let last = once(last).chain(self.last);
        let mut lines = heads
            .lines()
            .chain(repeat(""))
            .zip(last)
            .map(|(head, last)| {
                let line = format!("{head}{:gap$}{}", "", inert(last(room)));
                line.trim_end().to_owned()
            });
        let title = lines.next().unwrap_or_default();
        (title, lines.collect())
    }

    /// Writes titles, which stand out, and rows.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(self, width: usize, style: Style, out: &mut impl Write) -> io::Result<()> {
        let (title, rows) = self.lines(width);
        writeln!(out, "{}", style.bold(title))?;
        rows.iter().try_for_each(|row| writeln!(out, "{row}"))
    }
}

/// Columns of a column that gives way, at least.
const LEAST: usize = 8;

/// Lines of titles and rows, all of one width.
fn lay_out(columns: &[Column], mut rows: Vec<Vec<String>>, width: usize) -> (String, usize) {
    let yielding = columns.iter().position(|column| column.yields);
    let mut room = usize::MAX;
    if let Some(yielding) = yielding {
        let widest = |at: usize| {
            let cells = rows.iter().map(|row| text::columns(&row[at]));
            cells.max().unwrap_or(0).max(columns[at].width)
        };
        let others = (0..columns.len()).map(|at| {
            let own = if at == yielding { 0 } else { widest(at) };
            gap_of(at, columns) + own
        });
        room = width.saturating_sub(others.sum()).max(LEAST);
        for row in &mut rows {
            row[yielding] = text::cut(&row[yielding], room);
        }
    }
    let mut builder = Builder::with_capacity(rows.len() + 1, columns.len());
    builder.push_record(columns.iter().map(|column| &column.title));
    for row in rows {
        builder.push_record(row);
    }
    let mut table = builder.build();
    table.with(Borders::empty());
    let mut least = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let gap = gap_of(index, columns);
        let alignment = if column.is_left {
            Alignment::left()
        } else {
            Alignment::right()
        };
        table.modify(Columns::one(index), alignment);
        table.modify(Columns::one(index), Padding::new(gap, 0, 0, 0));
        let width = if column.yields {
            column.width.min(room)
        } else {
            column.width
        };
        least.push(gap + width);
    }
    let needed = PeekableGridDimension::width(table.get_records(), table.get_config());
    let widths = needed.into_iter().zip(least);
    let widths: Vec<usize> = widths.map(|(needed, least)| needed.max(least)).collect();
    let used = widths.iter().sum();
    table.with(Width::list(widths));
    (table.to_string(), used)
}

fn gap_of(index: usize, columns: &[Column]) -> usize {
    let before = index.checked_sub(1).map(|before| &columns[before]);
    columns[index].gap_behind(before)
}

/// A cell that cannot break its row: names are escaped before they are cut, this is for those that were not.
fn inert(cell: String) -> String {
    let breaks = |c: char| c.is_control() && c != '\x1b';
    if cell.contains(breaks) {
        terminal(&cell).into_owned()
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::cut;

    fn columns() -> [Column; 4] {
        [
            Column::right("TIME", 8),
            Column::right("WAITS", 6),
            Column::left("CLASS", 7),
            Column::left("NAME", 0),
        ]
    }

    fn cells<const N: usize>(cells: [&str; N]) -> [String; N] {
        cells.map(Into::into)
    }

    fn text(table: Table<'_>) -> String {
        let mut out = Vec::new();
        table.write(80, Style::Plain, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_end_and_text_begins_under_its_title() {
        let mut table = Table::new(columns());
        table.row(cells(["1.5 ms", "12", "mutex", "a lock"]));
        table.row(cells(["2 s", "3", "rwsem", ""]));
        table.row(cells(["", "15"]));
        let expected = "    TIME  WAITS  CLASS   NAME
  1.5 ms     12  mutex   a lock
     2 s      3  rwsem
             15
";
        assert_eq!(text(table), expected);
        let empty = "    TIME  WAITS  CLASS   NAME\n";
        assert_eq!(text(Table::new(columns())), empty);
    }

    #[test]
    fn gaps_are_as_wide_as_asked_for_but_not_at_the_beginning() {
        let columns = [
            Column::left("", 3).gap(9),
            Column::right("A", 2).gap(3),
            Column::right("LONG", 2),
        ];
        let mut table = Table::new(columns);
        table.row(cells(["x", "1", "2"]));
        assert_eq!(text(table), "       A LONG\nx      1    2\n");
    }

    #[test]
    fn a_wide_cell_widens_its_column_and_narrows_the_last() {
        let mut table = Table::new(columns());
        let fit = |room| cut("0123456789", room);
        table.fitted(cells(["1", "2", "mutex"]), fit);
        table.fitted(cells(["1", "2", "percpu-rwsem"]), fit);
        table.fitted(cells(["123456789"]), |room| room.to_string());
        let (title, rows) = table.lines(37);
        assert_eq!(title, "     TIME  WAITS  CLASS        NAME");
        assert_eq!(rows[0], "        1      2  mutex        01234…");
        assert_eq!(rows[1], "        1      2  percpu-rwsem 01234…");
        assert_eq!(rows[2], "123456789                      6");
    }

    #[test]
    fn a_column_that_gives_way_is_cut_where_rows_are_too_wide() {
        let lines = |width| {
            let mut table = Table::new([
                Column::left("DISK", 4).yielding(),
                Column::right("READ/s", 8),
                Column::right("BUSY", 5),
            ]);
            table.row(cells(["a-long-name-日本", "123,456,789", "5%"]));
            table.row(cells(["sda", "1", "5%"]));
            table.lines(width).1
        };
        assert_eq!(lines(34)[0], "a-long-name-日本 123,456,789    5%");
        assert_eq!(lines(33)[0], "a-long-name-日… 123,456,789    5%");
        assert_eq!(lines(32)[0], "a-long-name-… 123,456,789    5%");
        assert_eq!(lines(32)[1], "sda                     1    5%");
        assert_eq!(lines(9)[0], "a-long-… 123,456,789    5%");
        // Its own width gives way, too.
        let mut table = Table::new([Column::left("", 20).yielding(), Column::right("", 3)]);
        table.row(cells(["sda", "123,456,789"]));
        assert_eq!(table.lines(24).1[0], "sda          123,456,789");
    }

    #[test]
    fn no_room_is_no_panic() {
        let mut table = Table::new(columns());
        table.fitted(cells(["1"]), |room| room.to_string());
        assert_eq!(table.lines(3).1, ["       1                 0"]);
        let mut table = Table::new([Column::left("NAME", 9)]);
        table.row(cells(["a"]));
        assert_eq!(text(table), "NAME\na\n");
        let mut table = Table::new([]);
        table.row([]);
        assert_eq!(text(table), "\n\n");
    }

    #[test]
    fn emphasis_and_wide_characters_are_as_wide_as_they_look() {
        let mut table = Table::new(columns());
        let bold = Style::Ansi.bold("7 s").to_string();
        let dim = Style::Ansi.dim("mutex").to_string();
        table.row([bold, "1".into(), dim, "a".into()]);
        table.row(cells(["8 s", "1", "日本", "b"]));
        let (_, rows) = table.lines(80);
        assert_eq!(
            rows[0],
            "     \x1b[1m7 s\x1b[0m      1  \x1b[2mmutex\x1b[0m   a"
        );
        assert_eq!(rows[1], "     8 s      1  日本    b");
    }

    #[test]
    fn a_row_is_a_line_whatever_its_cells_are() {
        let mut table = Table::new(columns());
        table.row(cells(["1\n2", "\r", "\t", "a\nb\x1b]0;"]));
        table.fitted(cells(["1"]), |_| "a\u{85}b  ".into());
        let (_, rows) = table.lines(80);
        assert_eq!(rows.len(), 2);
        assert!(!rows.concat().contains(char::is_control), "{rows:?}");
        assert!(rows[1].ends_with("a\\u{85}b"), "{rows:?}");
    }
}
