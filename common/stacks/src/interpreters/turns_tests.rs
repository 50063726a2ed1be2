use super::*;

const PYTHON: &str = "/usr/bin/python3.11";
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

fn frame(name: &str, module: &str) -> Frame {
    let is_python = module.ends_with(".py");
    Frame {
        name: name.into(),
        kind: if is_python {
            FrameKind::Jit
        } else {
            FrameKind::User
        },
        inlined: false,
        module: Some(module.into()),
        address: 0,
        line: None,
    }
}

/// Leaf first.
fn takes(frames: &[(&str, &str)]) -> bool {
    let frames = frames.iter().rev();
    let frames: Vec<Frame> = frames.map(|(name, module)| frame(name, module)).collect();
    waits_for_python(&frames)
}

const WAITS: [(&str, &str); 3] = [
    ("__futex_abstimed_wait_common64", LIBC),
    ("__pthread_cond_wait_common", LIBC),
    ("___pthread_cond_timedwait64", LIBC),
];

#[test]
fn functions_of_python_and_calls_that_return_to_them_take_the_interpreter() {
    let spin = ("spin", "/srv/busy.py");
    for behind in [
        &[("take_gil", PYTHON), spin][..],
        &[("take_gil.part.0", "/usr/bin/uwsgi"), spin],
        &[("python3.12d+0x1", "/usr/bin/python3.12d"), spin],
        &[("python3.11+0x634357", PYTHON), spin],
        &[
            ("python3.14+0x6fa380", PYTHON),
            ("_Py_HandlePending", PYTHON),
            spin,
        ],
        &[
            ("python3.11+0x634357", PYTHON),
            ("PyEval_RestoreThread", PYTHON),
            ("time_sleep", PYTHON),
            spin,
        ],
        &[
            ("python3.11+0x634357", PYTHON),
            ("PyEval_RestoreThread", PYTHON),
            ("PyThread_acquire_lock_timed", PYTHON),
        ],
        // 3.14's are stripped of more.
        &[
            ("python3.14+0x54086a", PYTHON),
            ("python3.14+0x6ef722", PYTHON),
            ("_PySemaphore_Wait", PYTHON),
        ],
        &[
            ("libpython3.11.so.1.0+0x1", "/opt/lib/libpython3.11.so.1.0"),
            ("PyGILState_Ensure", "/opt/lib/libpython3.11.so.1.0"),
            ("callback", "/srv/engine.so"),
        ],
    ] {
        assert!(takes(&[&WAITS[..], behind].concat()), "{behind:?}");
    }
}

#[test]
fn locks_of_programs_and_pools_of_libraries_do_not() {
    let get = ("Queue.get", "/usr/lib/python3.11/queue.py");
    for behind in [
        &[("PyThread_acquire_lock_timed", PYTHON), get][..],
        &[("wait_for_work", "/srv/python_engine.cpython-311.so"), get],
        &[
            ("wait_for_work", "/usr/bin/python-agent"),
            ("start_thread", LIBC),
        ],
        &[
            ("blas_thread_server", "/usr/lib/libopenblas.so.0"),
            ("start_thread", LIBC),
        ],
        &[
            ("wait_for_work", "/srv/engine.so"),
            ("python3.11+0x1", PYTHON),
            get,
        ],
        &[get],
        &[],
    ] {
        assert!(!takes(&[&WAITS[..], behind].concat()), "{behind:?}");
    }
    let no_condition = [("sem_wait", LIBC), ("python3.11+0x1", PYTHON), get];
    assert!(!takes(&no_condition));
}
