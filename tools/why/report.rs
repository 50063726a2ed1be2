//! The report: sentences, and the table that they are read off.

use std::io::{self, Write};

use anyhow::{Context, Result};
use profile::folded::{self, FoldedOptions, Idle};
use profile::model::Profile;
use profile::style::Style;
use profile::text::write_lines;
use profile::write::Meta;
use session::closing::{self, Closing};
use session::output::{Format, write_all};
use session::program;

use crate::why::account::Account;
use crate::why::args::Args;
use crate::why::chosen::Chosen;
use crate::why::cycles_text;
use crate::why::page::page;
use crate::why::sentences::sentences;
use crate::why::table::table;
use crate::why::words::program as name_of;
use crate::why::{json, next};

/// Writes everything that was asked for. `wall`: all time by stack.
pub(crate) fn report(
    args: &Args,
    account: &Account,
    wall: &Profile,
    closing: &Closing,
) -> Result<()> {
    let report = Report {
        args,
        account,
        wall,
        closing,
        answer: answer(args, account),
    };
    // A report for people, unless something else was asked for, or files alone and nobody reads along.
    let format = match args.stacks.format(&args.common) {
        _ if args.brief => None,
        Some(Format::Folded) if !args.stacks.folded => Some(Format::Human),
        format => format,
    };
    write_all(&args.stacks.output, format, |format, mut out| {
        report.write(format, &mut out)
    })?;
    if !args.brief {
        return Ok(());
    }
    let brief = json::brief(account, &report.answer);
    let written = writeln!(io::stdout().lock(), "{brief}").context("write to stdout");
    program::unless_closed(written, ())
}

struct Report<'a> {
    args: &'a Args,
    account: &'a Account,
    wall: &'a Profile,
    closing: &'a Closing,
    /// The sentences, and the command that looks further.
    answer: Vec<String>,
}

impl Report<'_> {
    fn write(&self, format: Format, out: &mut impl Write) -> Result<()> {
        let Self { account, wall, .. } = *self;
        match format {
            Format::Human => {
                let style = Style::from(self.args.common.uses_color());
                self.write_human(style, out)?;
            }
            Format::Folded => {
                let options = FoldedOptions {
                    delimiter: self.args.stacks.delimited,
                    annotate: self.args.stacks.annotate,
                    divisor: 1_000,
                    idle: Idle::Fold,
                    ..FoldedOptions::default()
                };
                folded::write(wall, &options, out)?;
            }
            Format::Json => {
                let mut extra = json::whole(account, self.closing);
                extra.extend(self.meta().to_json());
                profile::json::write(wall, &extra, out)?;
            }
            Format::File(format) => {
                let mut meta = self.meta();
                meta.account = page(self.account, &self.answer);
                meta.title = match &account.programs[..] {
                    [one] => format!("Where {} spends its time", name_of(one)),
                    _ => "Where the time goes".to_owned(),
                };
                profile::write::write(wall, format, &meta, out)?;
            }
        }
        Ok(())
    }

    /// Facts of the run for other programs.
    fn meta(&self) -> Meta {
        let Closing { losses, cost, .. } = self.closing;
        let window = self.account.window.duration();
        closing::meta(losses, self.account.lifetime_ns, cost, window)
    }

    fn write_human(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        write_lines(&self.answer, out)?;
        writeln!(out)?;
        table(self.args, self.account).write(style, out)?;
        if let Some(cycles) = &self.account.cycles {
            writeln!(out)?;
            cycles_text::write(cycles, style, out)?;
        }
        Ok(())
    }
}

/// The sentences, and the command that looks further.
fn answer(args: &Args, account: &Account) -> Vec<String> {
    let chosen = account.chosen.iter();
    let mut answer: Vec<String> = chosen.flat_map(Chosen::describe).collect();
    answer.extend(sentences(account));
    if !account.is_of_nobody() {
        answer.push(next::next(args, account, session::next::is_there));
    }
    answer
}
