//! Makes the frames of one location.

use std::sync::Arc;

use profile::frame::{CALLS, Frame, FrameKind};

use crate::elfnames::Functions;

/// Frames root → leaf, and whether they have names.
pub(super) type Frames = (Arc<[Frame]>, bool);

/// Code of a file, with its functions if they are known.
pub(super) fn of_module(path: &Arc<str>, address: u64, functions: Option<Functions>) -> Frames {
    let frame = |name: Arc<str>, inlined, line| Frame {
        name,
        kind: FrameKind::User,
        inlined,
        module: Some(Arc::clone(path)),
        address,
        line,
    };
    let Some(functions) = functions else {
        let base = path
            .rsplit('/')
            .next()
            .filter(|b| !b.is_empty())
            .unwrap_or(path);
        return (
            Arc::new([frame(format!("{base}+{address:#x}").into(), false, None)]),
            false,
        );
    };
    let named = functions
        .named
        .into_iter()
        .enumerate()
        .map(|(depth, function)| {
            let line = function.line.map(|(file, line)| (file.into(), line));
            frame(function.name.into(), depth > 0, line)
        });
    (named.collect(), true)
}

/// Name of a function that has none, by one that it calls; no function's own name begins so.
pub(super) fn caller_of(callee: &str) -> String {
    format!("{CALLS}{callee}]")
}

/// The function that a name made by `caller_of` tells of.
pub fn callee_in(name: &str) -> Option<&str> {
    name.strip_prefix(CALLS)?.strip_suffix(']')
}

/// Code made at run time.
pub(super) fn anonymous(name: Option<String>, address: u64) -> Frames {
    let named = name.is_some();
    (
        without_module(
            name.unwrap_or_else(|| format!("[anon]+{address:#x}")),
            FrameKind::Jit,
            address,
        ),
        named,
    )
}

/// An address at which nothing was mapped: a wrong stack, or a mapping nobody saw.
pub(super) fn unmapped(address: u64) -> Frames {
    (
        without_module(format!("[unmapped]+{address:#x}"), FrameKind::User, address),
        false,
    )
}

/// What stands for a stack of which there are no addresses.
pub fn remark(text: &str) -> Arc<[Frame]> {
    without_module(text.into(), FrameKind::User, 0)
}

fn without_module(name: String, kind: FrameKind, address: u64) -> Arc<[Frame]> {
    Arc::new([Frame {
        name: name.into(),
        kind,
        inlined: false,
        module: None,
        address,
        line: None,
    }])
}
