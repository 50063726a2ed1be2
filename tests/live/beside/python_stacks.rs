//! Ends of Python's stacks: where another interpreter, a greenlet or more functions than are walked are.

use std::process::Command;

use super::interpreters::newer_python;
use super::python::{PYTHON, functions, of_text, text_of};
use crate::beside::symbols::name;
use crate::prelude::*;

/// A thread that calls another interpreter.
fn calls_another(mut python: Command, module: &str) -> Workload {
    let inner = "import os, time\\n\
        def nap():\\n    \
            time.sleep(600)\\n\
        print(\\'ready\\', os.getpid(), flush=True)\\n\
        nap()\\n";
    let program = format!(
        "import {module} as interpreters\n\
        def outer():\n    \
            interpreters.run_string(interpreters.create(), '{inner}')\n\
        outer()\n"
    );
    python.args(["-I", "-c", &program]);
    Workload::spawn("python", python)
}

/// Its wait.
fn wait_of(workload: &Workload) -> (Value, Value) {
    let args = format!("-j -p {} 0.2", workload.pid());
    let report = Tool::run("offcputime", args).ok().report();
    (only(&report, "stacks").clone(), report["losses"].clone())
}

/// Places of the module that calls the other interpreter, and of a function.
fn places(stack: &Value, module: &str, function: &str) -> [Option<usize>; 2] {
    let frames = list(stack, "user");
    let is_called = |frame: &Value| {
        let file = text_of(frame, "module").rsplit('/').next();
        file.is_some_and(|file| file.starts_with(module))
    };
    let called = frames.iter().rposition(is_called);
    [
        called,
        frames.iter().rposition(|frame| name(frame) == function),
    ]
}

/// A thread has a state for each interpreter, of which the inner one's is walked: its functions stand where its own loop stood, and the
/// outer one's, which stays, are said to be missing.
#[test]
fn functions_of_a_sub_interpreter_stand_behind_the_call_of_it() {
    let _machine = Machine::beside();
    let workload = calls_another(newer_python(), "_interpreters");
    let (stack, losses) = wait_of(&workload);
    assert_eq!(functions(&stack), ["<module>", "nap"], "{stack:#}");
    let [called, inner] = places(&stack, "_interpreters.", "<module>");
    assert!(called.is_some() && called < inner, "{stack:#}");
    assert_eq!(losses["python_unmatched"], 1, "{losses}");
}

/// Until 3.11 it is the outer one's.
#[test]
fn functions_that_call_a_sub_interpreter_stand_before_that() {
    let _machine = Machine::beside();
    let workload = calls_another(Command::new(PYTHON), "_xxsubinterpreters");
    let (stack, _) = wait_of(&workload);
    assert_eq!(functions(&stack), ["<module>", "outer"], "{stack:#}");
    let [called, outer] = places(&stack, "_xxsubinterpreters.", "outer");
    assert!(called.is_some() && outer < called, "{stack:#}");
}

/// A greenlet has a stack of its own: nothing that started it is in it, though that lies behind it in memory.
#[test]
fn a_greenlets_stack_begins_where_it_does() {
    let _machine = Machine::beside();
    let program = "import greenlet, os, time\n\
        def nap():\n    \
            time.sleep(600)\n\
        def run():\n    \
            print('ready', os.getpid(), flush=True)\n    \
            nap()\n\
        def start():\n    \
            greenlet.greenlet(run).switch()\n\
        start()\n";
    let workload = of_text(program);
    let args = format!("--strict -j -p {} 0.2", workload.pid());
    let report = Tool::run("offcputime", args).ok().report();
    let stack = only(&report, "stacks");
    assert_eq!(functions(stack), ["run", "nap"], "{stack:#}");
    assert_eq!(stack["user_end"], "root");
    let first = &list(stack, "user")[0];
    assert!(text_of(first, "module").contains("greenlet"), "{first}");
}

/// 128 functions, and a word that there are more.
#[test]
fn what_is_too_deep_is_cut_and_counted() {
    let _machine = Machine::beside();
    let program = "import os, sys, time\n\
        def down(depth):\n    \
            time.sleep(600) if depth == 0 else down(depth - 1)\n\
        print('ready', os.getpid(), flush=True)\n\
        sys.setrecursionlimit(5000)\n\
        down(3000)\n";
    let workload = of_text(program);
    let report = Tool::run("offcputime", format!("-j -p {} 0.2", workload.pid()));
    let report = report.status(0).report();
    let stack = only(&report, "stacks");
    let functions = functions(stack);
    assert_eq!(functions.len(), 129, "{functions:?}");
    assert!(
        functions[1..].iter().all(|name| *name == "down"),
        "{functions:?}"
    );
    assert_eq!(functions[0], "[Python: more functions]");
    assert_eq!(
        (&stack["user_end"], &report["losses"]["python_cut"]),
        (&"depth".into(), &1.into())
    );
}
