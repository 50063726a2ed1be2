//! The workload's side of the talk with the test, over stdin and stdout.

use std::io::{self, BufRead, Read, Write};

use serde_json::Value;

fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    // A test that has gone away needs no answer, and a panic here would only hide its failure.
    if writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .is_err()
    {
        std::process::exit(1);
    }
}

/// Says that every thread waits, and waits for the line that starts the work. End of input ends
/// the program.
pub fn ready_and_wait() {
    say(&format!("ready {}", std::process::id()));
    await_line();
}

/// Says that all results so far are out, and waits for the line that lets the work go on. End of
/// input ends the program.
pub fn done_and_wait() {
    say("done");
    await_line();
}

fn await_line() {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(0);
    }
}

/// Prints one result, an object.
pub fn report(fields: &Value) {
    say(&fields.to_string());
}

/// The fields of both.
#[must_use]
pub fn merged(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    fields
}

/// Says that all results are out, waits for the end of input and exits, threads and all.
pub fn done_and_exit() -> ! {
    say("done");
    // Whatever comes, an error included, the input is over.
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
    std::process::exit(0)
}
