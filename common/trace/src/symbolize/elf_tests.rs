//! Names of compiled programs, against `nm` and `addr2line`.

use std::fs;
use std::path::Path;

use profile::frame::Frame;

use super::elf::ElfNames;
use super::module::Module;
use super::test_programs::{TOOLS, compile, extent, have, module, oracle, run};

fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| &*frame.name).collect()
}

fn with_lines(frames: &[Frame]) -> Vec<(String, u32)> {
    let line = |frame: &Frame| frame.line.as_ref().map_or(0, |(_, line)| *line);
    frames
        .iter()
        .map(|frame| (frame.name.to_string(), line(frame)))
        .collect()
}

#[test]
fn inlined_functions_and_lines_agree_with_addr2line() {
    if !have(&TOOLS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for options in ["-O2 -g", "-O2 -g -no-pie", "-O2 -g -static-pie"] {
        let program = compile(directory.path(), options);
        let module = module(&program, None);
        let mut elf = ElfNames::with_debug_root(true, directory.path());
        let mut plain = ElfNames::with_debug_root(false, directory.path());
        let (start, size) = extent(&program, "visible");
        let mut deepest = 0;
        for address in start..start + size {
            let frames = elf.names(0, &module, address);
            let expected = oracle(&program, address);
            assert_eq!(with_lines(&frames), expected, "{options} {address:#x}");
            assert!(!frames[0].inlined && frames[1..].iter().all(|frame| frame.inlined));
            assert_eq!(names(&plain.names(0, &module, address)), ["visible"]);
            deepest = deepest.max(frames.len());
        }
        assert_eq!(deepest, 3, "{options}");
        assert_eq!(elf.unnamed(), 0);
    }
}

#[test]
fn unknown_addresses_keep_their_module_and_spoil_nothing() {
    if !have(&TOOLS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let good = module(&compile(directory.path(), "-O2"), None);
    let visible = extent(Path::new(&*good.path), "visible").0;
    let path = directory.path().join("libbad.so.1");
    fs::write(
        &path,
        [b"\x7fELF\x02\x01".as_slice(), &[0xff; 500]].concat(),
    )
    .unwrap();
    let bad = module(&path, None);
    let gone = Module {
        path: "/nowhere/libgone.so".into(),
        file: None,
        build_id: Vec::new(),
        root: None,
    };
    let mut elf = ElfNames::with_debug_root(true, directory.path());
    assert_eq!(names(&elf.names(1, &bad, 0x1234)), ["libbad.so.1+0x1234"]);
    assert_eq!(names(&elf.names(2, &gone, 0x10)), ["libgone.so+0x10"]);
    assert_eq!(names(&elf.names(0, &good, visible)), ["visible"]);
    assert_eq!(names(&elf.names(0, &good, 0x10)), ["program+0x10"]);
    assert_eq!(names(&elf.names(0, &good, u64::MAX)).len(), 1);
    assert_eq!(elf.unnamed(), 4);
    elf.names(0, &good, 0x10);
    assert_eq!(elf.unnamed(), 4);
}

#[test]
fn truncated_programs_do_no_harm() {
    if !have(&TOOLS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "-O2 -g");
    let visible = extent(&program, "visible").0;
    let whole = fs::read(&program).unwrap();
    let mut elf = ElfNames::with_debug_root(true, directory.path());
    for step in 0..64 {
        let mut damaged = whole[..whole.len() * step / 64].to_vec();
        let path = directory.path().join(format!("cut{step}"));
        fs::write(&path, &damaged).unwrap();
        assert!(
            !elf.names(1000 + step as u32, &module(&path, None), visible)
                .is_empty()
        );
        damaged = whole.clone();
        for byte in damaged.iter_mut().skip(step).step_by(64).skip(1) {
            *byte ^= 0x55;
        }
        fs::write(&path, &damaged).unwrap();
        assert!(
            !elf.names(2000 + step as u32, &module(&path, None), visible)
                .is_empty()
        );
    }
}

#[test]
fn a_program_truncated_while_it_is_read_does_no_harm() {
    if !have(&TOOLS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "-O2 -g");
    let (visible, _) = extent(&program, "visible");
    let (hidden, _) = extent(&program, "hidden");
    let writable = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&program, writable).unwrap();
    let module = module(&program, None);
    let mut elf = ElfNames::with_debug_root(true, directory.path());
    assert_eq!(names(&elf.names(0, &module, visible))[0], "visible");
    fs::write(&program, "").unwrap();
    assert_eq!(names(&elf.names(0, &module, hidden)), ["hidden"]);
}

#[test]
fn rust_names_come_without_their_hash() {
    if !have(&TOOLS) {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let table = run(Path::new("/"), &format!("nm {}", own.display()));
    let line = table
        .lines()
        .find(|line| line.contains("9symbolize10own_frames5strip"))
        .unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let mut elf = ElfNames::new(true);
    let frames = elf.names(0, &module(&own, None), address);
    assert_eq!(&*frames[0].name, "trace::symbolize::own_frames::strip");
}
