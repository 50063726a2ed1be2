//! Accounts of made-up groups.

use super::*;

fn group(root: &Path, periods: u64, used_up: u64, v1: bool) {
    let path = root.join("pod/app");
    fs::create_dir_all(&path).expect("a directory");
    let write = |name: &str, text: String| fs::write(path.join(name), text).expect("a file");
    let head = format!("nr_periods {periods}\nnr_throttled {used_up}\n");
    if v1 {
        let ns = 7_000_000 * used_up;
        write("cpu.stat", format!("{head}throttled_time {ns}\n"));
        write("cpu.cfs_quota_us", "20000\n".into());
        write("cpu.cfs_period_us", "100000\n".into());
    } else {
        let us = 7_000 * used_up;
        let usage = "usage_usec 5\nuser_usec 5\nsystem_usec 0\n";
        write("cpu.stat", format!("{usage}{head}throttled_usec {us}\n"));
        write("cpu.max", "20000 100000\n".into());
    }
}

fn quotas(root: &Path, v1: bool) -> Quotas {
    let path = root.join("pod/app");
    let root = Some(root.to_owned());
    let (v1, v2) = if v1 { (root, None) } else { (None, root) };
    let accounts = account(&path).map(|account| (path, account));
    Quotas {
        v1,
        v2,
        accounts: accounts.into_iter().collect(),
        is_whole: true,
    }
}

#[test]
fn groups_have_names_by_their_inodes_and_are_looked_for_once() {
    use std::os::unix::fs::MetadataExt;

    let root = tempfile::tempdir().expect("a directory");
    group(root.path(), 3, 2, false);
    let path = root.path().join("pod/app");
    let id = fs::metadata(&path).expect("there").ino();
    let mut names = Names::default();
    names.look_up(root.path(), [id, 1].into_iter());
    assert_eq!((&names.paths[&id], &names.paths[&1]), (&Some(path), &None));
    names.look_up(Path::new("/nowhere"), [id, 1].into_iter());
    assert!(names.paths[&id].is_some());
}

#[test]
fn accounts_differ_unless_they_are_of_different_groups() {
    let account = |periods, used_up, throttled_ns| Account {
        periods,
        used_up,
        throttled_ns,
    };
    let (then, now) = (account(10, 3, 70), account(13, 5, 95));
    assert_eq!(now.since(then), Some(account(3, 2, 25)));
    assert_eq!(then.since(now), None);
}

#[test]
fn what_was_used_up_is_told_in_both_versions() {
    for v1 in [true, false] {
        let root = tempfile::tempdir().expect("a directory");
        let take = |periods, used_up| {
            group(root.path(), periods, used_up, v1);
            quotas(root.path(), v1)
        };
        let (first, then, last) = (take(10, 0), take(30, 5), take(54, 23));
        assert!(first.used_up_since(&first).is_empty());
        assert!(last.used_up_since(&last).is_empty());
        assert_eq!(then.used_up_since(&first)[0].used_up, 5);
        let mut none = Quotas::default();
        assert!(last.used_up_since(&none).is_empty(), "it may be old");
        none.is_whole = true;
        assert_eq!(last.used_up_since(&none)[0].used_up, 23);
        let [found] = &last.used_up_since(&then)[..] else {
            panic!("one group")
        };
        let numbers = (found.periods, found.used_up, found.throttled_ns);
        assert_eq!(numbers, (24, 18, 18 * 7_000_000));
        let said = found.describe();
        assert!(said[0].starts_with("CPU quota of /") && said[0].ends_with("/pod/app"));
        assert_eq!(said[1], "20.0 ms per 100 ms, used up in 18 of 24 periods");
        assert_eq!(found.name(), "app");
        let path = found.path.display().to_string();
        let expected = if v1 {
            "-p 7".into()
        } else {
            format!("--cgroup {path}")
        };
        assert_eq!(found.target(Some(7)), Some(expected));
    }
}

#[test]
fn its_processes_are_those_in_it_and_below() {
    let of = |is_v2| UsedUp {
        path: "/cg/pod".into(),
        root: "/cg".into(),
        is_v2,
        ..UsedUp::default()
    };
    let both = "4:cpu,cpuacct:/pod/app\n1:name=systemd:/x\n0::/\n";
    assert!(of(false).is_in(both));
    assert!(!of(true).is_in(both));
    assert!(of(true).is_in("4:cpu:/\n0::/pod\n"));
    assert!(!of(true).is_in("0::/pod2\n"));
    assert!(!of(true).is_in(""));
}

#[test]
fn what_spends_it_is_asked_of_who_waited_or_was_chosen_or_anybody_in_it() {
    let root = tempfile::tempdir().expect("a directory");
    let own = std::process::id();
    let below = root.path().join("pod/app");
    fs::create_dir_all(&below).expect("a directory");
    let quota = UsedUp {
        path: root.path().join("pod"),
        ..UsedUp::default()
    };
    let asked = |tgid, targets: &Targets| {
        let line = quota.next(tgid, targets);
        let command = line.split("   #").next().expect("a command");
        command.strip_prefix("next: ").expect("its end").to_owned()
    };
    let all = Targets::default();
    assert_eq!(asked(None, &all), "pressure 5 1", "nobody is in it");
    // The first one in the list is gone.
    fs::write(below.join("cgroup.procs"), format!("{}\n{own}\n", u32::MAX)).expect("a file");
    assert_eq!(asked(None, &all), format!("profile -p {own} 10"));
    assert_eq!(asked(Some(7), &all), "profile -p 7 10");
    let chosen = Targets {
        comm: Some("app".parse().expect("a name")),
        ..Targets::default()
    };
    assert_eq!(asked(None, &chosen), "profile --comm app 10");
}
