//! gate
#[derive(clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_: &Args) -> anyhow::Result<std::process::ExitCode> {
    Ok(std::process::ExitCode::from(crate::EXCEEDED))
}
