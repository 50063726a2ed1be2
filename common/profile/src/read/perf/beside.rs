//! Pieces of a file read beside each other, and added up in their order: the result is the same however many read.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, available_parallelism, scope};

use super::parser::{Batch, Parser};
use super::pieces::Pieces;
use super::sum::Sum;
use crate::read::{ReadError, ReadOptions};
use crate::recording::Recording;

/// More would wait for the one that adds up.
const MOST_PARSERS: usize = 4;
/// Pieces that each parser has before it.
const WAITING: usize = 2;
/// Bytes that are read beside each other, where events are long.
const MOST_BYTES: usize = 8 << 20;
/// Bytes of a piece: some hundred events, a small part of the memory that a recording takes.
const PIECE: usize = 256 << 10;

/// Reads all events into one recording.
pub(in crate::read) fn read(
    input: &mut impl Read,
    options: &ReadOptions,
) -> Result<Recording, ReadError> {
    let processors = available_parallelism().map_or(1, usize::from);
    read_beside(input, options, PIECE, processors.min(MOST_PARSERS))
}

fn read_beside(
    input: &mut impl Read,
    options: &ReadOptions,
    size: usize,
    parsers: usize,
) -> Result<Recording, ReadError> {
    let mut pieces = Pieces::new(input, size);
    let mut sum = Sum::new(options, parsers);
    let Some(first) = pieces.next(Vec::new())? else {
        return Ok(sum.end());
    };
    if pieces.has_ended || parsers < 2 {
        alone(first, &mut pieces, &mut sum)?;
    } else {
        scope(|scope| {
            // As many as the system lets there be.
            let lanes = (0..parsers).map_while(|_| Lane::start(scope, options.names_only).ok());
            match &*lanes.collect::<Vec<_>>() {
                [] => alone(first, &mut pieces, &mut sum),
                lanes => beside(lanes, first, &mut pieces, &mut sum),
            }
        })?;
    }
    Ok(sum.end())
}

/// On this thread.
fn alone(
    first: Vec<u8>,
    pieces: &mut Pieces<impl Read>,
    sum: &mut Sum<'_>,
) -> Result<(), ReadError> {
    let mut parser = Parser::new(sum.names_only());
    let mut piece = Some(first);
    while let Some(text) = piece {
        let memory = sum.take(0, parser.parse(text))?;
        piece = pieces.next(memory)?;
    }
    Ok(())
}

/// On a thread for each lane, and this one.
fn beside(
    lanes: &[Lane],
    first: Vec<u8>,
    pieces: &mut Pieces<impl Read>,
    sum: &mut Sum<'_>,
) -> Result<(), ReadError> {
    let mut memory = Vec::new();
    // Lanes that have pieces, in the order of the file, and how long those are.
    let mut turns = VecDeque::new();
    let mut bytes = 0;
    let mut next = Ok(Some(first));
    for lane in (0..lanes.len()).cycle() {
        let is_last = !matches!(next, Ok(Some(_)));
        while is_last || turns.len() >= WAITING * lanes.len() || bytes > MOST_BYTES {
            let Some((turn, length)) = turns.pop_front() else {
                break;
            };
            let read = sum.take(turn, lanes[turn].batch())?;
            bytes -= length;
            if read.capacity() <= MOST_BYTES {
                memory.push(read);
            }
        }
        let Some(piece) = next? else { break };
        turns.push_back((lane, piece.len()));
        bytes += piece.len();
        lanes[lane].parse(piece);
        next = pieces.next(memory.pop().unwrap_or_default());
    }
    Ok(())
}

/// A thread that parses; it ends when its lane is dropped.
struct Lane {
    pieces: SyncSender<Vec<u8>>,
    batches: Receiver<Batch>,
}

impl Lane {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, names_only: bool) -> io::Result<Self> {
        let (pieces, todo) = sync_channel::<Vec<u8>>(WAITING);
        let (done, batches) = sync_channel(WAITING);
        Builder::new().spawn_scoped(scope, move || {
            let mut parser = Parser::new(names_only);
            for piece in todo {
                if done.send(parser.parse(piece)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { pieces, batches })
    }

    fn parse(&self, piece: Vec<u8>) {
        self.pieces.send(piece).expect("the parser waits for more");
    }

    fn batch(&self) -> Batch {
        self.batches.recv().expect("the parser answers each piece")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::{Format, write_recording};

    /// Events of two kinds by several threads, with frames that were inlined, remarks in between, and a last one that is cut off.
    fn capture(events: usize) -> String {
        let mut text = String::from("# usekit: comment first\n");
        for event in 0..events {
            let kind = if event % 5 == 4 {
                "page-faults"
            } else {
                "cpu-clock"
            };
            let thread = event % 3;
            text += &format!("  pool {thread} 7/{thread} [000] {event}.5: 100 {kind}: \n");
            for depth in 0..event % 13 {
                let function = (event * 7 + depth * depth) % 29;
                text += &match function {
                    0..5 => format!("\t{:x} f{function} (inlined)\n", 4096 + depth),
                    _ => format!(
                        "\t{:x} f{function}+0x1 (/bin/m{})\n",
                        4096 + depth,
                        function % 3
                    ),
                };
            }
            text += if event % 50 == 7 {
                "# a remark\n\n"
            } else {
                "\n"
            };
        }
        text + "  pool 0 7/0 [000] 1e"
    }

    fn folded(
        text: &str,
        options: &ReadOptions,
        size: usize,
        parsers: usize,
    ) -> Result<String, ReadError> {
        let recording = read_beside(&mut text.as_bytes(), options, size, parsers)?;
        let mut bytes = Vec::new();
        write_recording(&recording, Format::Json, "", &mut bytes).expect("memory");
        Ok(String::from_utf8(bytes).expect("text"))
    }

    #[test]
    fn how_many_read_makes_no_difference() {
        let broken = capture(2000);
        let (whole, _) = broken.rsplit_once('\n').expect("lines");
        let period = ReadOptions {
            from: Some(100.0),
            to: Some(1500.0),
            names_only: true,
            ..ReadOptions::default()
        };
        for options in [ReadOptions::default(), period] {
            let alone = folded(whole, &options, PIECE, 1).expect("events");
            assert!(
                alone.contains("f28") && alone.contains("left out"),
                "{alone}"
            );
            for (size, parsers) in [(1, 1), (1000, 1), (1, 2), (700, 2), (5000, 3), (20_000, 4)] {
                assert_eq!(
                    folded(whole, &options, size, parsers).as_ref(),
                    Ok(&alone),
                    "{size}, {parsers}"
                );
                let wrong = folded(&broken, &options, size, parsers).expect_err("the last line");
                let start = format!(
                    "line {} (byte {}): neither",
                    broken.lines().count(),
                    whole.len() + 1
                );
                assert!(wrong.to_string().starts_with(&start), "{wrong}");
            }
        }
    }
}
