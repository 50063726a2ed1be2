use super::*;

fn meaning(rules: &Rules, stack: &[(&str, Option<&str>)]) -> Option<(usize, Meaning)> {
    rules.waited_in(stack.iter().copied(), None)
}

#[test]
fn the_tools_own_rules_are_right() {
    let rules = Rules::ours();
    assert!(rules.rules.len() > 80);
    // A rule that another one hides says nothing.
    for (at, rule) in rules.rules.iter().enumerate() {
        let hides = |other: &&Rule| {
            other.function.fits(&rule.function.text)
                && (other.function.is_prefix || !rule.function.is_prefix)
                && (other.library.is_none() || other.library == rule.library)
                && (other.value.is_none() || other.value == rule.value)
        };
        let hidden = rules.rules[..at].iter().find(hides);
        assert_eq!(hidden, None, "{rule:?}");
    }
}

#[test]
fn a_mistake_is_told_with_its_place() {
    let mistake = |text: &str| Rules::parse(text).unwrap_err().to_string();
    assert_eq!(
        mistake("# a remark\n\nf"),
        "line 3, column 2: a library is missing, or '-' for any"
    );
    assert_eq!(mistake("  f -   "), "line 1, column 6: a class is missing");
    assert_eq!(
        mistake("f - mutex"),
        "line 1, column 10: a role is missing: contention, barrier, io, work, tasks or '-'"
    );
    assert_eq!(
        mistake("f - mutex lock"),
        "line 1, column 11: a role is contention, barrier, io, work, tasks or '-'"
    );
    assert_eq!(
        mistake("f - rounds tasks own"),
        "line 1, column 18: nothing may follow"
    );
    let class = "a class is a word of at most 16 small letters, digits and hyphens";
    for wrong in [
        "Row",
        "-",
        "row_lock",
        "a-very-long-class",
        "1st",
        "r\u{1b}",
    ] {
        let said = mistake(&format!("f - {wrong} work"));
        assert_eq!(said, format!("line 1, column 5: {class}"));
    }
    assert_eq!(
        mistake("f - mutex work mine"),
        "line 1, column 16: only 'own', '+BYTES' or '=NUMBER', of 32 bits, may stand here"
    );
    assert_eq!(
        mistake("f - mutex work own 1 # 2"),
        "line 1, column 20: nothing may follow"
    );
}

#[test]
fn the_users_rules_come_first_and_fit_names_and_libraries() {
    let users = Rules::parse("pool_take* libpool.so* pool contention own\nsem_wait - sem work\n");
    let rules = users.unwrap().then(Rules::ours());
    let in_pool = [
        ("futex_wait", Some("/lib/libc.so.6")),
        ("pthread_cond_wait", Some("/lib/libc.so.6")),
        ("pool_take_slow", Some("/opt/libpool.so.3")),
        ("serve", Some("/opt/app")),
    ];
    let (at, found) = meaning(&rules, &in_pool).unwrap();
    assert_eq!((at, found.class, found.word), (2, Class::Named, "pool"));
    assert!(found.role == Role::Trouble && found.is_own);
    // A function of another library is what it is made of.
    let elsewhere = in_pool.map(|(name, _)| (name, Some("/opt/app")));
    let (at, found) = meaning(&rules, &elsewhere).unwrap();
    assert_eq!(
        (at, found.class, found.role),
        (1, Class::Cond, Role::Unsaid)
    );
    let role = |name| meaning(&rules, &[(name, None)]).map(|(_, found)| found.role);
    assert_eq!(role("__sem_wait"), Some(Role::Work));
    assert_eq!(role("sem_waiting_list"), Some(Role::Unsaid), "ours");
    assert_eq!(role("my_sem_wait"), None);
}

#[test]
fn a_function_without_a_name_may_have_a_rule() {
    let rules = Rules::ours();
    assert_eq!(rules.callees(), ["thd_storage_lock_wait"]);
    let server = Some("/usr/sbin/mariadbd");
    let stack = [
        ("pthread_cond_timedwait", Some("/lib/libc.so.6")),
        ("[calls:thd_storage_lock_wait]", server),
        ("mariadbd+0xd3c3a4", server),
        ("handler::ha_index_read_map", server),
    ];
    let (at, found) = meaning(rules, &stack).unwrap();
    assert_eq!((at, found.word, found.is_own), (1, "row-lock", true));
    let users = Rules::parse("[calls:grant] - grant contention\n").unwrap();
    assert_eq!(users.then(rules).callees()[0], "grant");
}

/// InnoDB's latches and its queue for the log, in a server without names; its condition variables are whatever else they are.
#[test]
fn a_stripped_servers_own_futexes_are_latches() {
    let rules = Rules::ours();
    let server = Some("/usr/sbin/mariadbd");
    let libc = Some("/lib/libc.so.6");
    let own = [("syscall", libc), ("mariadbd+0xde2b6c", server)];
    let word = |stack: &[_], value| {
        let found = rules.waited_in(stack.iter().copied(), Some(value));
        found.map(|(at, meaning)| (at, meaning.word))
    };
    assert_eq!(word(&own, 1 << 31 | 3), Some((1, "latch")));
    assert_eq!(word(&own, 0), Some((1, "commit")));
    let cond = [("pthread_cond_wait", libc), own[1]];
    assert_eq!(word(&cond, 7), Some((0, "cond")));
    let named = [own[0], ("handler::ha_index_read_map", server), own[1]];
    assert_eq!(word(&named, 7), None);
    assert_eq!(word(&[own[0], ("app+0x12", Some("/app"))], 7), None);
    assert!(!rules.know(own[1].0, server), "it is its caller");
}

#[test]
fn what_is_made_of_locks_is_further_up() {
    let rules = Rules::ours();
    let lwlock = [
        ("do_futex_wait.constprop.0", Some("/lib/libc.so.6")),
        ("sem_wait", Some("/lib/libc.so.6")),
        (
            "PGSemaphoreLock",
            Some("/usr/lib/postgresql/15/bin/postgres"),
        ),
        ("LWLockAcquire", Some("/usr/lib/postgresql/15/bin/postgres")),
        ("XLogFlush", Some("/usr/lib/postgresql/15/bin/postgres")),
    ];
    let (at, found) = meaning(rules, &lwlock).unwrap();
    assert_eq!((at, found.word, found.is_own), (3, "lwlock", true));
    // Beyond the frames that are looked at nobody waits.
    let mut deep = [("f", None); MAX_FRAMES + 1];
    deep[MAX_FRAMES] = ("LWLockAcquire", None);
    assert_eq!(meaning(rules, &deep), None);
    // A nameless frame of GNU's OpenMP library, and a lock of it further up.
    let gomp = Some("/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0");
    let barrier = [("libgomp.so.1.0.0+0x1f0a", gomp), ("work", None)];
    assert_eq!(meaning(rules, &barrier).unwrap().1.class, Class::Barrier);
    let critical = [
        ("libgomp.so.1.0.0+0x1f0a", gomp),
        ("GOMP_critical_start", gomp),
    ];
    assert_eq!(meaning(rules, &critical).unwrap().1.word, "openmp-lock");
}

/// GNU's OpenMP library has no names for what it waits in.
#[test]
fn a_rule_may_be_of_one_value_only() {
    let rules = Rules::ours();
    let gomp = Some("/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0");
    let waited = |value| {
        let stack = [("libgomp.so.1.0.0+0x1f0a", gomp), ("work", None)];
        let (_, found) = rules.waited_in(stack.into_iter(), value).unwrap();
        (found.word, found.role)
    };
    assert_eq!(waited(Some(u32::MAX)), ("openmp-lock", Role::Trouble));
    assert_eq!(waited(Some(8)), ("barrier", Role::Unsaid));
    assert_eq!(waited(None), ("barrier", Role::Unsaid));
    let value = |word: &str| {
        let rules = Rules::parse(&format!("f - mutex contention {word}"));
        rules.map(|rules| rules.rules[0].value)
    };
    let all = [
        ("=0x10", 16),
        ("=16", 16),
        ("=-2", u32::MAX - 1),
        ("=4294967295", u32::MAX),
    ];
    for (word, number) in all {
        assert_eq!(value(word), Ok(Some(number)));
    }
    for wrong in ["=", "=0x", "=1x", "=4294967296", "=-2147483649", "16"] {
        let said = value(wrong).unwrap_err().to_string();
        let expected =
            "line 1, column 22: only 'own', '+BYTES' or '=NUMBER', of 32 bits, may stand here";
        assert_eq!(said, expected, "{wrong}");
    }
}

/// A runtime of tasks says nothing of what its threads wait for.
#[test]
fn an_async_runtime_is_known_by_functions_and_files() {
    let rules = Rules::ours();
    let worker = [
        ("pthread_cond_wait", Some("/usr/lib/libc.so.6")),
        ("my_server::load", Some("/opt/app")),
        ("<tokio::runtime::task::raw::Poll>::poll", Some("/opt/app")),
    ];
    assert_eq!(rules.runtime_of(worker.into_iter()), Some("tokio"));
    let (at, found) = meaning(rules, &worker).unwrap();
    assert_eq!((at, found.word, found.role), (0, "cond", Role::Unsaid));
    assert_eq!(rules.runtime_of(worker[..2].iter().copied()), None);
    let library = "/usr/lib/python3.11/lib-dynload/_asyncio.cpython-311-x86_64-linux-gnu.so";
    let runtime = rules.runtime_of([("", Some(library))].into_iter());
    assert_eq!(runtime, Some("asyncio"));
    let users = Rules::parse("app::loop* app rounds tasks\n")
        .unwrap()
        .then(rules);
    let of_user = [("app::loop_once", Some("/opt/app"))];
    assert_eq!(users.runtime_of(of_user.into_iter()), Some("rounds"));
    assert_eq!(users.runtime_of(worker.into_iter()), Some("tokio"));
}

#[test]
fn the_manuals_example_is_right() {
    let manual = include_str!("../../../man/lockstat.8");
    let from = manual.find(".nf\n# FUNCTION").expect("an example") + 4;
    let example = manual[from..].split("\n.fi").next().expect("its end");
    let rules = Rules::parse(example).expect("rules");
    assert_eq!(rules.rules.len(), 9);
}

/// A queue of work may be made of a condition variable.
#[test]
fn every_rule_with_a_role_is_heard_above_a_condition_variable() {
    let rules = Rules::ours();
    for rule in &rules.rules {
        let library = rule
            .library
            .as_ref()
            .map(|library| format!("/usr/lib/{}", library.text));
        let name = format!("{}_x", rule.function.text);
        let name = if rule.function.is_prefix {
            &name
        } else {
            &rule.function.text
        };
        let stack = [
            ("__futex_abstimed_wait_common", Some("/usr/lib/libc.so.6")),
            ("pthread_cond_wait", Some("/usr/lib/libc.so.6")),
            (name.as_str(), library.as_deref()),
        ];
        let (_, heard) = rules.waited_in(stack.into_iter(), rule.value).unwrap();
        // Python's own is a lock, and made of one.
        let is_lock = rule.meaning.class.is_lock() && rule.meaning.class != Class::Gil;
        let is_lock = is_lock || rule.is_of_nameless();
        let is_made = rule.meaning.role != Role::Unsaid && !is_lock;
        let expected = if is_made {
            rule.meaning.role
        } else {
            Role::Unsaid
        };
        assert_eq!(heard.role, expected, "{rule:?}");
    }
}

#[test]
fn a_lock_inside_of_another_is_the_one_that_is_waited_for() {
    let rules = Rules::ours();
    let mutex = [("pthread_mutex_lock", None), ("take_gil", None)];
    assert_eq!(meaning(rules, &mutex).unwrap().1.class, Class::Mutex);
    // A futex of the program's own, in a function that GNU's OpenMP library calls.
    let gomp = Some("/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0");
    let own = [
        ("syscall", Some("/usr/lib/libc.so.6")),
        ("spin", Some("/opt/app")),
        ("GOMP_parallel", gomp),
    ];
    assert_eq!(meaning(rules, &own), None);
}

#[test]
fn a_remark_begins_where_a_word_would() {
    let rules = Rules::parse("app::{closure#0} - pool contention # own\n#\n").unwrap();
    let (_, found) = meaning(&rules, &[("app::{closure#0}", None)]).unwrap();
    assert!(found.word == "pool" && !found.is_own);
}

#[test]
fn versions_of_libraries_are_no_part_of_a_name() {
    let meaning = |function: &str| {
        let found = Rules::ours().waited_in([(function, Some("app"))].into_iter(), None);
        found.map(|(_, meaning)| meaning.class)
    };
    for (function, class) in [
        ("absl::lts_20220623::Mutex::LockSlowLoop(int)", Class::Mutex),
        ("absl::lts_20240722::CondVar::WaitCommon()", Class::Cond),
        (
            "std::__1::barrier<std::__1::__empty_completion>::wait() const",
            Class::Barrier,
        ),
        (
            "std::__1::__libcpp_atomic_wait(void const volatile*, long)",
            Class::Cond,
        ),
        ("std::__ndk1::latch::wait() const", Class::Barrier),
    ] {
        assert_eq!(meaning(function), Some(class), "{function}");
    }
    assert_eq!(meaning("absl::lts_"), None);
}
