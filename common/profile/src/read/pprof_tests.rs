use super::*;

use crate::pprof::Line;

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
