//! The reading process: it has no file system, hardly any rights and a bounded heap.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use elf::{Headers, unpacks_within};
use foreign::helper::own_descriptors;
use foreign::wire;

use super::super::elfnames::ElfNames;
use super::answer::{Answer, Question};

/// Answers until the socket closes.
pub(super) fn serve(socket: &UnixStream, mut names: ElfNames) -> io::Result<()> {
    let descriptors = own_descriptors();
    let mut files = HashMap::new();
    while let Some(message) = wire::next(socket, true)? {
        let question: Question = message.read()?;
        if let Some(file) = message.file {
            let harmless = is_harmless(&file);
            files.insert(question.file, harmless.then_some(file));
        }
        let found = files.get(&question.file).and_then(|file| {
            let path = descriptors.join(file.as_ref()?.as_raw_fd().to_string());
            names.resolve(&path, question.dwarf, &question.addresses)
        });
        wire::send(socket, &found.map_or(Answer::Refused, Answer::of), None)?;
    }
    Ok(())
}

/// Whether `.gnu_debugdata`, if there is one, unpacks to something reasonable: the library has no limit of its own. What
/// slips through ends this process.
fn is_harmless(file: &File) -> bool {
    let Some(headers) = Headers::read(file) else {
        return false;
    };
    headers
        .mini_debug
        .is_none_or(|range| unpacks_within(file, range))
}
