//! pprof's messages, by hand from github.com/google/pprof, proto/profile.proto. Texts are indices into the string table.
//! Signed numbers are unsigned here, which is the same on the wire.

use prost::Message;

/// But for what there is much of: samples (field 2), locations (4) and functions (5), each a message of its own.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) mapping: Vec<Mapping>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    #[prost(uint64, tag = "9")]
    pub(crate) time_nanos: u64,
    #[prost(uint64, tag = "10")]
    pub(crate) duration_nanos: u64,
    #[prost(message, optional, tag = "11")]
    pub(crate) period_type: Option<ValueType>,
    #[prost(uint64, tag = "12")]
    pub(crate) period: u64,
    #[prost(uint64, repeated, packed = "false", tag = "13")]
    pub(crate) comment: Vec<u64>,
    #[prost(uint64, tag = "14")]
    pub(crate) default_sample_type: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ValueType {
    #[prost(uint64, tag = "1")]
    pub(crate) name: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) unit: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample {
    /// The leaf first.
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_id: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) value: Vec<u64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Label {
    #[prost(uint64, tag = "1")]
    pub(crate) key: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) str: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) num: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) num_unit: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) memory_limit: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) filename: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) build_id: u64,
    #[prost(bool, tag = "7")]
    pub(crate) has_functions: bool,
    #[prost(bool, tag = "8")]
    pub(crate) has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub(crate) has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub(crate) has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
    /// The innermost inlined function first.
    #[prost(message, repeated, tag = "4")]
    pub(crate) line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Line {
    #[prost(uint64, tag = "1")]
    pub(crate) function_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) line: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Function {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) name: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) system_name: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) filename: u64,
}

/// A location without a name: `libc.so.6+0x8ef04`; `0x8ef04` where the file has none, either.
pub(crate) fn place(module: &str, address: u64) -> String {
    let base = module.rsplit('/').next().unwrap_or_default();
    match base {
        "" => format!("{address:#x}"),
        base => format!("{base}+{address:#x}"),
    }
}
