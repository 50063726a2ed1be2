//! Errors as one line: the file, the reason, and what helps.

use std::io::{self, ErrorKind};

/// Ends what the standard library says, before a number and a parenthesis.
const NUMBER: &str = " (os error ";

/// `ACT: CAUSE; REMEDY`, without control characters: names in it were chosen by somebody else.
pub(crate) fn line(error: &anyhow::Error) -> String {
    let mut line = format!("{error:#}").replace('\n', " ");
    if let Some(cause) = error.downcast_ref::<io::Error>() {
        if let Some(at) = line.rfind(NUMBER) {
            line.truncate(at);
        }
        line.push_str(remedy(cause.kind(), line.starts_with("write ")));
    }
    profile::escape::terminal(&line).into()
}

fn remedy(kind: ErrorKind, writes: bool) -> &'static str {
    match kind {
        ErrorKind::NotFound | ErrorKind::NotADirectory if writes => "; make its directory first",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; make room there",
        ErrorKind::NotFound | ErrorKind::NotADirectory => "; check its name",
        _ if writes => "; choose another place",
        ErrorKind::PermissionDenied => "; run it as somebody who may read it",
        _ => "",
    }
}

/// True if nobody reads the output any more.
pub(crate) fn is_closed_pipe(err: &anyhow::Error) -> bool {
    let mut causes = err
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
