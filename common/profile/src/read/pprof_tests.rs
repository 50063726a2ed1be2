use super::*;

use std::io::Read;

use flate2::read::GzDecoder;

use crate::pprof::Line;
use crate::write::{Format, write_recording};

/// A document with one sample in `f`, whose values are 1, 20, 300 and so on, of types (name, unit).
fn document(types: &[(&str, &str)], default: &str, comment: &str) -> Vec<u8> {
    let mut texts = vec![String::new(), "f".into()];
    let mut id = |text: &str| {
        let known = texts.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            texts.push(text.into());
            texts.len() - 1
        }) as u64
    };
    let types = types.iter().map(|(name, unit)| ValueType {
        name: id(name),
        unit: id(unit),
    });
    let sample_type: Vec<ValueType> = types.collect();
    let numbers = (1..).zip([1, 10, 100, 1000]);
    let value = numbers.map(|(digit, place)| digit * place);
    let mut document = Vec::new();
    let mut put = |number: u8, message: &[u8]| {
        // All are short: one byte says how long.
        document.extend([number << 3 | 2, message.len() as u8]);
        document.extend(message);
    };
    let sample = Sample {
        location_id: vec![1],
        value: value.take(sample_type.len()).collect(),
        ..Sample::default()
    };
    put(2, &sample.encode_to_vec());
    let line = Line {
        function_id: 1,
        line: 0,
    };
    let location = Location {
        id: 1,
        line: vec![line],
        ..Location::default()
    };
    put(4, &location.encode_to_vec());
    let function = Function {
        id: 1,
        name: 1,
        ..Function::default()
    };
    put(5, &function.encode_to_vec());
    let profile = Profile {
        sample_type,
        default_sample_type: id(default),
        comment: (!comment.is_empty())
            .then(|| id(comment))
            .into_iter()
            .collect(),
        string_table: texts,
        ..Profile::default()
    };
    document.extend(profile.encode_to_vec());
    document
}

/// Weight of the one sample, and what it is called.
fn drawn(document: &[u8]) -> (u64, String) {
    let recording = read(document).expect("a profile");
    (recording.total(), recording.header.values[0].name.clone())
}

const HEAP: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

#[test]
fn values_of_others_are_never_added_up() {
    for (default, expected) in [
        ("", (4000, "inuse_space")),
        ("alloc_objects", (1, "alloc_objects")),
        ("inuse_objects", (300, "inuse_objects")),
        // One that there is not.
        ("samples", (4000, "inuse_space")),
    ] {
        let (weight, name) = drawn(&document(&HEAP, default, ""));
        assert_eq!((weight, &*name), expected, "{default}");
    }
}

#[test]
fn contention_is_looked_at_by_its_delay() {
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    for (default, comment) in [
        ("delay", "made by usekit lockstat"),
        ("delay", ""),
        ("", ""),
    ] {
        let document = document(&types, default, comment);
        assert_eq!(drawn(&document), (20, "delay".into()), "{comment}");
    }
}

#[test]
fn parts_of_our_own_time_are_added_up() {
    let types = [
        ("blocked", "nanoseconds"),
        ("runnable", "nanoseconds"),
        ("total", "nanoseconds"),
    ];
    let document = document(&types, "total", "made by usekit offcputime");
    assert_eq!(drawn(&document), (21, "blocked".into()));
}

/// Messages of this field in what is written of a document.
fn written<M: Message + Default>(document: &[u8], number: usize) -> Vec<M> {
    let recording = read(document).expect("a profile");
    let (mut packed, mut unpacked) = (Vec::new(), Vec::new());
    write_recording(&recording, Format::Pprof, "", &mut packed).expect("memory");
    let mut unzip = GzDecoder::new(&packed[..]);
    unzip.read_to_end(&mut unpacked).expect("a whole file");
    let fields = fields(&unpacked).map(|field| field.expect("a field"));
    let fields = fields.filter(|field| field.number == number);
    let messages = fields.map(|field| field.message().expect("a message"));
    messages.collect()
}

/// One location has a line where its function has a name; else pprof may look for the name.
#[test]
fn a_place_without_a_name_is_left_to_pprof() {
    let named = document(&HEAP, "", "");
    let whole: Profile = Profile::decode(&named[..]).expect("a document");
    let mut nameless = Vec::new();
    for field in fields(&named) {
        let field = field.expect("a field");
        if field.number != 4 && field.number != 6 {
            nameless.extend(field.whole);
        }
    }
    let mapping = Mapping {
        id: 1,
        filename: whole.string_table.len() as u64,
        ..Mapping::default()
    };
    let place = Location {
        id: 1,
        mapping_id: 1,
        address: 0x1234,
        line: Vec::new(),
    };
    let rest = Profile {
        mapping: vec![mapping],
        string_table: [whole.string_table, vec!["/usr/bin/app".into()]].concat(),
        ..Profile::default()
    };
    nameless.extend(rest.encode_to_vec());
    nameless.extend([4 << 3 | 2, place.encoded_len() as u8]);
    nameless.extend(place.encode_to_vec());
    let read_back = read(&nameless).expect("a profile");
    let frame = read_back.frames()[0];
    assert_eq!(read_back.text(frame.name), "app+0x1234");
    let [location] = &written::<Location>(&nameless, 4)[..] else {
        panic!("one location");
    };
    assert_eq!((location.address, location.line.len()), (0x1234, 0));
    let said = |mapping: &Mapping| {
        let (functions, lines) = (mapping.has_functions, mapping.has_line_numbers);
        [
            functions,
            mapping.has_filenames,
            lines,
            mapping.has_inline_frames,
        ]
    };
    assert_eq!(said(&written::<Mapping>(&nameless, 3)[0]), [false; 4]);
    assert_eq!(written::<Location>(&named, 4)[0].line.len(), 1);
}
