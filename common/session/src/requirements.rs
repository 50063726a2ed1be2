//! Needs of every tracing tool, checked before anything is loaded.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use host::privileges::{self, Capabilities};

/// Checks what loading BPF programs takes, before anything is loaded.
///
/// # Errors
///
/// Names the capability that is missing, or says that the kernel has no type information.
pub fn check() -> Result<()> {
    check_capabilities(privileges::effective())?;
    check_lockdown(lockdown().as_deref())?;
    check_btf(Path::new("/sys/kernel/btf/vmlinux"))
}

/// Root may have been stripped of capabilities and others may have them, so the user ID is not asked.
fn check_capabilities(effective: Capabilities) -> Result<()> {
    if effective.contains(Capabilities::SYS_ADMIN) {
        return Ok(());
    }
    let needed = [
        (Capabilities::BPF, "CAP_BPF"),
        (Capabilities::PERFMON, "CAP_PERFMON"),
    ];
    let missing: Vec<&str> = needed
        .into_iter()
        .filter_map(|(capability, name)| (!effective.contains(capability)).then_some(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "needs root, or CAP_BPF and CAP_PERFMON (missing: {}); run it with sudo",
        missing.join(", ")
    )
}

/// In the stricter of its two modes BPF programs may not read the kernel's memory.
fn check_lockdown(mode: Option<&str>) -> Result<()> {
    if mode == Some("confidentiality") {
        bail!("kernel lockdown is in confidentiality mode, which forbids tracing; boot without it");
    }
    Ok(())
}

fn check_btf(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    if path.starts_with("/sys") && !Path::new("/sys/kernel").exists() {
        bail!("sysfs, with the kernel's BTF, is not mounted; mount -t sysfs none /sys");
    }
    bail!(
        "this kernel has no BTF ({} is missing); a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed",
        path.display()
    )
}

/// The kernel's lockdown mode, where there is one and it can be seen.
pub(crate) fn lockdown() -> Option<String> {
    let modes = fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    let mode = modes.split('[').nth(1)?.split(']').next()?;
    (mode != "none").then(|| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_capability_is_named() {
        let message = |has| check_capabilities(has).unwrap_err().to_string();
        assert!(check_capabilities(Capabilities::SYS_ADMIN).is_ok());
        assert!(check_capabilities(Capabilities::BPF | Capabilities::PERFMON).is_ok());
        let without = message(Capabilities::BPF);
        assert!(without.contains("(missing: CAP_PERFMON)"), "{without}");
        let message = message(Capabilities::empty());
        assert!(
            message.contains("(missing: CAP_BPF, CAP_PERFMON); run it with sudo"),
            "{message}"
        );
    }

    #[test]
    fn lockdown_forbids_tracing_in_its_stricter_mode_only() {
        assert!(check_lockdown(None).is_ok() && check_lockdown(Some("integrity")).is_ok());
        let message = check_lockdown(Some("confidentiality")).unwrap_err();
        assert!(message.to_string().contains("lockdown"), "{message}");
    }

    #[test]
    fn a_kernel_without_btf_is_told_from_other_troubles() {
        let message = check_btf(Path::new("/nonexistent/btf"))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("no BTF") && message.contains("CONFIG_DEBUG_INFO_BTF=y"),
            "{message}"
        );
    }
}
