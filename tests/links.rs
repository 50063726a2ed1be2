//! Files that are installed beside the programs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::programs::TOOLS;

#[test]
fn installed_documents_link_to_what_is_installed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut install = Command::new("setup/install");
    let programs = PathBuf::from(env!("CARGO_BIN_EXE_usekit"));
    install
        .arg(programs.parent().expect("a directory"))
        .arg(dir.path());
    let tools = TOOLS.iter().map(|(tool, _)| tool);
    let status = install.args(tools).current_dir(super::root()).status();
    assert!(status.expect("a shell").success());
    let installed = dir.path().join("share/doc/usekit");
    for page in [
        "README.md",
        "SECURITY.md",
        "docs/guide.md",
        "docs/numbers.md",
    ] {
        let page = installed.join(page);
        let text = fs::read_to_string(&page).expect("text");
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.contains(':')) {
            let target = page.parent().expect("a directory").join(link);
            assert!(target.exists(), "{}: {link}", page.display());
        }
    }
    let readme = fs::read_to_string(installed.join("README.md")).expect("text");
    assert!(readme.contains("[Guide](docs/guide.md)"));
    assert!(readme.contains("Contributing says how") && !readme.contains("CONTRIBUTING.md"));
}
