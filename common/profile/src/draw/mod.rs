//! Flame graphs.
use crate::recording::Recording;
use std::io::{self, Write};
/// x
#[derive(Clone, Debug, Default)]
pub struct View {
    /// t
    pub title: String,
}
impl View {
    /// t
    pub fn titled(t: &str) -> Self {
        Self { title: t.into() }
    }
}
/// x
pub fn svg(_: &Recording, _: &View, _: &mut impl Write) -> io::Result<()> {
    Ok(())
}
/// x
pub fn html(_: &Recording, _: &View, _: &mut impl Write) -> io::Result<()> {
    Ok(())
}
