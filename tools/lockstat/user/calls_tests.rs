use super::*;
use crate::lockstat::row::Side;

fn file(is_whole: u64, names: &[&str]) -> file_path {
    let mut file = file_path {
        is_whole,
        ..file_path::default()
    };
    for (words, name) in file.names.iter_mut().zip(names) {
        let mut bytes = [0; 64];
        let cut = name.len().min(63);
        bytes[..cut].copy_from_slice(&name.as_bytes()[..cut]);
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        }
    }
    file
}

fn lock(class: u8) -> Identity {
    Identity {
        side: Side::User,
        address: 4711,
        object: 8 << 20 | 3,
        device: None,
        tgid: 0,
        class,
    }
}

#[test]
fn a_files_name_is_its_path_and_that_of_its_kind_its_directory() {
    let own = |file: &file_path| name_of_file(lock(FIRST), Some(file));
    // A mount leaves an empty name.
    let name = own(&file(1, &["a.lock", "lock", "", "var"]));
    assert_eq!(
        (&*name.own, &*name.kind),
        ("/var/lock/a.lock", "files in /var/lock/")
    );
    let name = own(&file(0, &["memfd:x"]));
    assert_eq!((&*name.own, &*name.kind), ("memfd:x", ""));
}

#[test]
fn a_file_without_path_is_known_by_its_inode() {
    let name = name_of_file(lock(FIRST), None);
    assert_eq!(name.own, "inode 4711 on 8:3");
    assert_eq!(name_of_file(lock(FIRST), Some(&file(1, &[]))), name);
}

#[test]
fn a_set_without_a_key_is_known_by_its_number() {
    assert_eq!(
        name_of_set(lock(FIRST + 3), &Sets::default()).own,
        "set 4711"
    );
}
