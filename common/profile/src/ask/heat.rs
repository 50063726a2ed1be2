//! When samples were taken: a column per second, in it the part of the second from bottom to top, darker is more.
//!
//! As in FlameScope: what repeats each second is a line, a burst is a spot, a pause is white.

use std::io::{self, BufRead, Write};

use crate::escape::{markup, terminal};
use crate::read::ReadError;
use crate::read::perf::times_of;
use crate::units;

/// Parts of a second.
pub const PARTS: usize = 50;
/// Longest time that is drawn, s.
const LONGEST: usize = 24 * 3600;

/// Samples by second and part of it.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    /// A column per second, from the first sample on.
    pub seconds: Vec<[u64; PARTS]>,
    /// All samples that are in `seconds`.
    pub total: u64,
    /// Idle tasks' samples, left out.
    pub idle: u64,
    /// Samples before the first one, or later than a day after it.
    pub outside: u64,
}

impl Heat {
    /// Counts the events of `perf script` text, each for as many samples as it stands for, those of idle tasks apart.
    ///
    /// # Errors
    ///
    /// When the text cannot be read.
    pub fn read(input: &mut impl BufRead) -> Result<Self, ReadError> {
        let mut heat = Self::default();
        let mut first = None;
        times_of(input, |time, weight, event| {
            // The same zero as that of --from and --to.
            let offset = time - *first.get_or_insert(time);
            if event.comm == "swapper" && event.pid == 0 {
                heat.idle = heat.idle.saturating_add(weight);
            } else {
                heat.add(offset, weight);
            }
        })?;
        Ok(heat)
    }

    fn add(&mut self, offset: f64, weight: u64) {
        if !(0.0..LONGEST as f64).contains(&offset) {
            self.outside = self.outside.saturating_add(weight);
            return;
        }
        let second = offset as usize;
        // 0.05 is a hair below itself after a subtraction.
        let part = (((offset - second as f64) * PARTS as f64 + 1e-6) as usize).min(PARTS - 1);
        if second >= self.seconds.len() {
            self.seconds.resize(second + 1, [0; PARTS]);
        }
        let place = &mut self.seconds[second][part];
        *place = place.saturating_add(weight);
        self.total = self.total.saturating_add(weight);
    }

    fn most(&self) -> u64 {
        self.seconds.iter().flatten().copied().max().unwrap_or(0)
    }

    fn describe(&self) -> String {
        let mut text = format!(
            "{} in {} s; at most {} in one fiftieth of a second",
            units::counted(self.total, "samples"),
            self.seconds.len(),
            self.most()
        );
        if self.idle > 0 {
            text += &format!(
                "; {} left out",
                units::counted(self.idle, "samples of idle CPUs")
            );
        }
        if self.outside > 0 {
            text += &format!(
                "; {} out of order or later than a day",
                units::counted(self.outside, "samples")
            );
        }
        text
    }
}

const READING: [&str; 2] = [
    "A column is a second, from bottom to top; time goes on to the right. Darker: more samples.",
    "Look closer: flame draw IN --from SECOND --to SECOND",
];

/// Draws it.
///
/// # Errors
///
/// Those of `out`.
pub fn svg(heat: &Heat, title: &str, out: &mut impl Write) -> io::Result<()> {
    let columns = heat.seconds.len().max(1);
    let column = (1100.0 / columns as f64).clamp(1.0, 20.0);
    let (left, top, row) = (50.0, 92.0, 7.0);
    let (width, height) = (
        (left + columns as f64 * column + 20.0).max(640.0),
        top + PARTS as f64 * row + 40.0,
    );
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" font-family="Verdana, DejaVu Sans, sans-serif" font-size="12">"#
    )?;
    writeln!(out, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
    writeln!(
        out,
        r#"<text x="10" y="24" font-size="17" font-weight="bold">{}</text>"#,
        markup(title)
    )?;
    writeln!(
        out,
        r#"<text x="10" y="44">{}</text>"#,
        markup(&heat.describe())
    )?;
    for (line, text) in READING.iter().enumerate() {
        writeln!(
            out,
            r#"<text x="10" y="{}" fill="dimgray">{text}</text>"#,
            62 + 16 * line
        )?;
    }
    for (part, label) in [(0, "0.0 s"), (PARTS / 2, "0.5 s"), (PARTS, "1.0 s")] {
        let y = top + (PARTS - part) as f64 * row + 4.0;
        writeln!(
            out,
            r#"<text x="{}" y="{y}" text-anchor="end">{label}</text>"#,
            left - 6.0
        )?;
    }
    let most = heat.most().max(1) as f64;
    for (second, parts) in heat.seconds.iter().enumerate() {
        let x = left + second as f64 * column;
        for (part, count) in parts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let y = top + (PARTS - 1 - part) as f64 * row;
            let from = second as f64 + part as f64 / PARTS as f64;
            writeln!(
                out,
                r#"<rect x="{x:.2}" y="{y}" width="{column:.2}" height="{row}" fill="{}"><title>{from:.2} s: {}</title></rect>"#,
                shade(*count as f64 / most),
                units::counted(*count, "samples"),
            )?;
        }
    }
    let step = columns.div_ceil(10).max(1);
    for second in (0..columns).step_by(step) {
        let x = left + second as f64 * column;
        let y = top + PARTS as f64 * row + 18.0;
        writeln!(out, r#"<text x="{x:.1}" y="{y}">{second} s</text>"#)?;
    }
    writeln!(out, "</svg>")
}

/// One hue from light to dark, so that more is darker for everybody.
fn shade(part: f64) -> String {
    let mix = |light: f64, dark: f64| (light + (dark - light) * part.sqrt()).round() as u8;
    format!(
        "#{:02x}{:02x}{:02x}",
        mix(254.0, 103.0),
        mix(240.0, 0.0),
        mix(217.0, 13.0)
    )
}

/// Draws it with characters; seconds that do not fit the width are left to the picture.
///
/// # Errors
///
/// Those of `out`.
pub fn text(heat: &Heat, title: &str, width: usize, out: &mut impl Write) -> io::Result<()> {
    const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
    const ROWS: usize = 10;
    writeln!(out, "{}: {}", terminal(title), heat.describe())?;
    writeln!(out, "{}", READING[0])?;
    let most = heat
        .seconds
        .iter()
        .flat_map(|parts| parts.chunks(PARTS / ROWS))
        .map(|parts| parts.iter().sum::<u64>())
        .max();
    let most = most.unwrap_or(0).max(1);
    let shown = heat.seconds.len().min(width.saturating_sub(8).max(10));
    for row in (0..ROWS).rev() {
        let line: String = heat.seconds[..shown]
            .iter()
            .map(|parts| {
                let parts = &parts[row * PARTS / ROWS..(row + 1) * PARTS / ROWS];
                let count: u64 = parts.iter().sum();
                // Something is never drawn as nothing.
                SHADES[(count * 4).div_ceil(most) as usize]
            })
            .collect();
        writeln!(out, "{:>4.1} s |{line}|", row as f64 / ROWS as f64)?;
    }
    let mut axis = String::new();
    for second in (0..shown).step_by(10) {
        axis += &format!("{second:<10}");
    }
    writeln!(out, "        {}", axis.trim_end())?;
    if shown < heat.seconds.len() {
        writeln!(
            out,
            "… {} s more; -o FILE.svg has them",
            heat.seconds.len() - shown
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said_where_anything_is() {
        let mut heat = Heat::default();
        for offset in [0.0, 0.001, 1.5] {
            heat.add(offset, 1);
        }
        assert_eq!(
            heat.describe(),
            "3 samples in 2 s; at most 2 in one fiftieth of a second"
        );
        heat.idle = 4;
        heat.add(-1.0, 1);
        assert_eq!(
            heat.describe(),
            "3 samples in 2 s; at most 2 in one fiftieth of a second; 4 samples of idle CPUs left out; \
             1 sample out of order or later than a day"
        );
    }
}
