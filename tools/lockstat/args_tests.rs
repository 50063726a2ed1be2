//! Options of lockstat.

use super::*;

#[test]
fn each_extra_class_adds_the_one_of_its_name() {
    let names = [
        "cond", "sem", "sysv-sem", "eventfd", "join", "barrier", "park", "unknown",
    ];
    for name in [&names[..], &["client", "activity", "timeout"]].concat() {
        let args = Args::parse_from(["lockstat", "--class", name]);
        let mut words: Vec<&str> = args.classes().iter().map(|one| one.word()).collect();
        words.extend(args.server_classes().iter().map(|one| one.word()));
        assert_eq!(words, [name]);
    }
    let all = Args::parse_from(["lockstat", "--class", "all"]);
    let numbers = (all.classes().len(), all.server_classes().len());
    assert_eq!(numbers, (Class::FAMILIES.len(), 3));
}
