//! Stacks of C, C++, Rust, Go, Python and Java, in few words.

use super::*;

fn frames(names: &[&str]) -> Vec<Frame> {
    let frame = |name: &&str| {
        let (mark, text) = name.split_at_checked(2).unwrap_or(("", name));
        let is_marked = ["i:", "c:", "j:", "v:"].contains(&mark);
        Frame {
            name: if is_marked { text } else { name }.into(),
            kind: match mark {
                "j:" => FrameKind::Jit,
                _ => FrameKind::User,
            },
            inlined: mark == "i:",
            module: Some(
                match mark {
                    "c:" => "/lib/libc.so.6",
                    "v:" => "[vdso]",
                    _ => "/bin/app",
                }
                .into(),
            ),
            address: 1,
            line: None,
        }
    };
    names.iter().map(frame).collect()
}

fn line(kernel: &[&str], user: &[&str]) -> String {
    brief(&frames(kernel), &frames(user)).join(" > ")
}

const START: [&str; 3] = ["_start", "c:__libc_start_main_impl", "main"];

#[test]
fn the_programs_own_functions_are_left_and_what_they_call() {
    let rust = [
        "c:clone3",
        "c:start_thread",
        "<std::sys::thread::unix::Thread>::new::thread_start",
        "i:catch_unwind<(), f>",
        "i:{closure#1}<demo::main, ()>",
        "read_from_the_pipe<std::io::PipeReader>",
        "<std::sys::fs::unix::File>::read",
        "c:__GI___libc_read",
    ];
    let kernel = ["entry_SYSCALL_64", "ksys_read", "anon_pipe_read"];
    let said = "read_from_the_pipe > __GI___libc_read > [k] anon_pipe_read";
    assert_eq!(line(&kernel, &rust), said);
    let c = [&START[..], &["a", "b", "c", "d", "e"]].concat();
    assert_eq!(line(&[], &c), "… > a > b > c > d > e");
    let recursive = [&START[..], &["a", "a", "a"]].concat();
    assert_eq!(line(&[], &recursive), "main > a");
    let future = "<app::Worker as core::future::future::Future>::poll";
    assert_eq!(line(&[], &[future, "c:read"]), format!("{future} > read"));
}

#[test]
fn go_and_operators_of_libraries_are_no_programs() {
    let go = [
        "runtime.main",
        "main.f",
        "runtime.makeslice",
        "runtime.mallocgc",
    ];
    assert_eq!(line(&[], &go), "main.f > runtime.mallocgc");
    assert!(!is_own(&frames(&["bool std::operator==<char>(a, b)"])[0]));
}

#[test]
fn an_inlined_function_stays_in_its_place() {
    let iterator = ["main", "core::iter::fold", "i:parse"];
    assert_eq!(line(&[], &iterator), "main > core::iter::fold > parse");
}

#[test]
fn programs_without_names_have_their_addresses() {
    let nameless = ["_start", "app+0x10", "app+0x20", "c:read"];
    assert_eq!(line(&[], &nameless), "app+0x10 > app+0x20 > read");
    assert_eq!(line(&["anon_pipe_read"], &[]), "[k] anon_pipe_read");
    assert_eq!(line(&[], &[]), "");
}

#[test]
fn functions_compiled_at_run_time_stand_without_their_run_time_system() {
    let python = [
        "main",
        "PyEval",
        "j:py::handler:/app.py",
        "PyEval",
        "j:py::query:/db.py",
        "c:recv",
    ];
    assert_eq!(
        line(&[], &python),
        "py::handler:/app.py > py::query:/db.py > recv"
    );
    let java = [
        "c:clone3",
        "JavaMain",
        "j:Interpreter",
        "j:Interpreter",
        "j:Lapp/Main;::run",
    ];
    assert_eq!(line(&[], &java), "Lapp/Main;::run");
}

#[test]
fn who_calls_a_lock_or_a_wait_of_the_kernel_is_said() {
    let reclaim = [
        "do_syscall_64",
        "do_user_addr_fault",
        "down_read",
        "rwsem_down_read_slowpath",
    ];
    let said = "[k] do_user_addr_fault > down_read > rwsem_down_read_slowpath";
    assert_eq!(line(&reclaim, &[]), said);
}

#[test]
fn parameters_and_types_are_left_out() {
    for (long, said) in [
        (
            "app::Cache<std::basic_string<char>, int>::lookup(int, char const*)",
            "app::Cache::lookup",
        ),
        (
            "void std::__invoke_impl<void, f>(std::__invoke_other, f&&)",
            "std::__invoke_impl",
        ),
        ("app::f(int) const", "app::f"),
        ("<a::B as c::D<e>>::f", "<a::B as c::D<e>>::f"),
        ("operator>", "operator>"),
        ("net/http.(*Client).Do", "net/http.(*Client).Do"),
        ("(anonymous namespace)::hidden(int)", "hidden"),
        ("map<fn((u8, ())) -> u8>::next", "map::next"),
        ("app::parse(int) [clone .cold]", "app::parse"),
        ("void app::(anonymous namespace)::f<int>(int)", "app::f"),
        ("alloc::slice::<impl [T]>::to_vec", "alloc::slice::to_vec"),
        ("app::f() const &", "app::f"),
        ("k8s_operator::reconcile<T>", "k8s_operator::reconcile"),
        ("f", "f"),
    ] {
        assert_eq!(short(long), said);
    }
}

#[test]
fn how_deep_a_thread_is_in_its_program() {
    let depth = |names: &[&str]| own_depth(&frames(names));
    let waits = ["main", "serve", "i:take", "c:pthread_cond_wait"];
    assert_eq!(depth(&waits), Some(2));
    assert_eq!(depth(&["c:start_thread", "c:poll"]), Some(0));
    // None of an interpreter's own functions says how deep in its program it is.
    let python = ["main", "_PyEval_EvalFrameDefault", "acquire_timed"];
    assert_eq!(depth(&python), None);
    // Functions say it, too, if the loop is shown below them.
    let mut native = frames(&[
        "main",
        "_PyEval_EvalFrameDefault",
        "j:work",
        "acquire_timed",
    ]);
    native[1].module = Some("/usr/bin/python3.11".into());
    native[2].module = Some("/srv/app.py".into());
    native[3].module = native[1].module.clone();
    assert_eq!(own_depth(&native), Some(3));
    let python = |file: &str| {
        let mut python = frames(&["main", "j:work", "j:Queue.get", "acquire_timed"]);
        python[0].module = Some("/usr/bin/python3.11".into());
        python[1].module = Some("/srv/app.py".into());
        python[2].module = Some(file.into());
        python[3].module = python[0].module.clone();
        own_depth(&python)
    };
    assert_eq!(python("/usr/lib/python3.11/queue.py"), Some(2));
    assert_eq!(python("<frozen importlib._bootstrap>"), Some(2));
    let package = "/usr/lib/python3/dist-packages/pool.py";
    assert_eq!(python(package), Some(3));
    let package = "/srv/lib/python3.11/site-packages/pool.py";
    assert_eq!(python(package), Some(3));
}

#[test]
fn a_stack_of_python_is_in_the_programs_function_and_not_in_the_librarys() {
    let place = |files: [&str; 3]| {
        let mut user = frames(&[
            "main",
            "j:shop.pay",
            "j:queue.Queue.get",
            "j:threading.wait",
            "acquire",
        ]);
        for (frame, file) in user[1..4].iter_mut().zip(files) {
            frame.module = Some(file.into());
        }
        place(&[], &user).map(Cow::into_owned)
    };
    for library in [
        "/usr/lib/python3.11",
        "/usr/lib64/python3.13t",
        "/usr/lib/python311.zip",
    ] {
        let [queue, threading] = ["queue", "threading"].map(|name| format!("{library}/{name}.py"));
        let found = place(["/srv/shop.py", &queue, &threading]);
        assert_eq!(found.as_deref(), Some("shop.pay"), "{library}");
        // A pool's thread is in nothing else.
        let found = place([&queue, &queue, &threading]);
        assert_eq!(found.as_deref(), Some("threading.wait"), "{library}");
    }
    let own = [
        "/srv/python3.d/shop.py",
        "/srv/python3.d/queue.py",
        "/usr/lib/python3/dist-packages/pool.py",
    ];
    assert_eq!(place(own).as_deref(), Some("threading.wait"));
    let nameless = ["main", "j:shop.pay", "j:[Python: code not read]"];
    let mut nameless = frames(&nameless);
    nameless[1].module = Some("/srv/shop.py".into());
    assert_eq!(super::place(&[], &nameless).as_deref(), Some("shop.pay"));
}

#[test]
fn a_stack_is_in_the_programs_last_function_or_in_the_kernels() {
    let place = |kernel: &[&str], user: &[&str]| {
        let (kernel, user) = (frames(kernel), frames(user));
        place(&kernel, &user).map(Cow::into_owned)
    };
    let user = [
        "_start",
        "main",
        "void app::Cache<int>::get(int) const",
        "c:read",
    ];
    let found = place(&["ksys_read"], &user);
    assert_eq!(found.as_deref(), Some("app::Cache::get"));
    let found = place(&[], &["c:clone3", "c:read"]);
    assert_eq!(found.as_deref(), Some("read"), "no function of its own");
    let kernel = ["kthread", "worker_thread", "folio_wait_bit", "io_schedule"];
    assert_eq!(place(&kernel, &[]).as_deref(), Some("worker_thread"));
    let waker = [
        "do_exit",
        "do_notify_parent",
        "__wake_up_sync_key",
        "try_to_wake_up",
    ];
    assert_eq!(place(&waker, &[]).as_deref(), Some("do_notify_parent"));
    assert_eq!(place(&["schedule"], &[]).as_deref(), Some("schedule"));
    assert_eq!(place(&[], &[]), None);
    let nameless = place(&[], &["main", "dash+0xbcbf", "c:read"]);
    assert_eq!(nameless.as_deref(), Some("dash (no symbols)"));
    let kernel = ["do_syscall_64", "__x64_sys_wait4", "do_wait"];
    let waits = place(&kernel, &["main", "dash+0xbcbf", "c:wait4"]);
    assert_eq!(waits.as_deref(), Some("dash (no symbols), wait4()"));
    let timed = place(&[], &["main", "work", "v:clock_gettime"]);
    assert_eq!(timed.as_deref(), Some("work"), "the vDSO is no part of it");
}
