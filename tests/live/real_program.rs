//! Programs as Debian ships them, at work: built without frame pointers, mostly stripped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::kernel::until;

/// A program, the load on it, and whose process is looked at. Dropping it ends them.
pub(crate) struct Real {
    pub(crate) pid: u32,
    children: Vec<Child>,
}

impl Drop for Real {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Its process group: nginx's worker goes with its master.
            let group = libc::pid_t::try_from(child.id()).expect("process ids fit");
            // SAFETY: our own child, not yet waited for, leads this group.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            let _ = child.wait();
        }
    }
}

fn spawn(command: &mut Command) -> Child {
    use std::os::unix::process::CommandExt;
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; setup/deps test"))
}

/// Starts a program and waits for a line with `ready` on its stdout.
fn announced(command: &mut Command, ready: &str) -> Real {
    let mut child = spawn(command.stdout(Stdio::piped()));
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let said = lines.any(|line| line.is_ok_and(|line| line.contains(ready)));
    assert!(said, "{command:?} never said {ready}");
    // Somebody has to read on: a closed pipe would end it.
    thread::spawn(move || lines.for_each(drop));
    Real {
        pid: child.id(),
        children: vec![child],
    }
}

fn load(command: &mut Command) -> Child {
    spawn(command.stdout(Stdio::null()))
}

/// CPUs of a server and of the load on it: where they take turns on one, so do their samples.
const SERVER: &str = "0";
const CLIENT: &str = "1";

fn on_cpu(cpu: &str, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpu, program]);
    command
}

/// redis-server with two clients that keep it busy: plain reads, and writes into a sorted set. Always busy: timers of a CPU that is
/// halted fire when a client wakes it, and two clocks then see different halves of what it does.
pub(crate) fn redis(dir: &Path) -> Real {
    let socket = dir.join("redis");
    // One program, which is what it is called; the package that has it starts no service.
    let program = dir.join("redis-server");
    symlink("/usr/bin/redis-check-rdb", &program).expect("setup/deps test");
    let mut server = on_cpu(SERVER, program.to_str().expect("plain"));
    server
        .args(["--save", ""])
        .args("--port 0 --appendonly no --daemonize no --unixsocket".split(' '));
    server.arg(&socket).current_dir(dir);
    let mut real = announced(&mut server, "accept connections");
    for work in [
        "-P 32 get key",
        "-P 32 -r 1000 zadd set __rand_int__ m:__rand_int__",
    ] {
        let mut client = on_cpu(CLIENT, "redis-benchmark");
        client
            .arg("-s")
            .arg(&socket)
            .args("-q -n 1000000000 -c 8".split(' '));
        real.children.push(load(client.args(work.split(' '))));
    }
    real
}

/// A program of an interpreter's, which says that it is ready.
fn interpreted(command: &str, dir: &Path, text: &str) -> Real {
    let script = dir.join("job");
    fs::write(&script, text).expect("a file");
    let mut words = command.split(' ');
    let mut interpreter = Command::new(words.next().expect("a program"));
    announced(interpreter.args(words).arg(&script), "ready")
}

/// Debian's interpreter: one thread computes, three sleep. Its laps have no period, with which two clocks of one rate would be in
/// step, each at another place.
pub(crate) fn python(dir: &Path) -> Real {
    let text = r"
import hashlib, json, random, re, threading, time

def sleep():
    while True:
        time.sleep(0.01)

def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

for _ in range(3):
    threading.Thread(target=sleep, daemon=True).start()
print('ready', flush=True)
while True:
    fibonacci(random.randint(12, 16))
    json.loads(json.dumps({str(i): [i] * 3 for i in range(200)}))
    sorted((str(i) for i in range(2000)), key=lambda text: text[::-1])
    re.sub(r'(\w)(\d)', r'\2\1', 'a1b2c3' * 100)
    hashlib.sha256(b'x' * 100000).hexdigest()
";
    interpreted("/usr/bin/python3", dir, text)
}

/// A shell that computes, matches, and forks subshells; for random times, or a sampling clock may keep step with it.
pub(crate) fn bash(dir: &Path) -> Real {
    let text = r#"
echo ready
x=0
while :; do
    x=$((x + 1)); s=$(printf '%08d' $x)
    [[ $s =~ (0+)([1-9]) ]]
    case $s in
    *7) ( : ) ;;
    *) a=${s//0/o}; n=$((RANDOM % 400)); for j in {1..400}; do y=$((j * 3 % 7)); ((j < n)) || break; done ;;
    esac
done
"#;
    interpreted("/bin/bash", dir, text)
}

/// C++: CMake's interpreter, working on strings and lists.
pub(crate) fn cmake(dir: &Path) -> Real {
    let text = r#"
function(turn from out)
  string(SHA1 digest "The quick brown fox ${from}")
  string(REGEX REPLACE "([0-9a-f])([0-9])" "\\2\\1" turned "${digest}")
  set(${out} "${turned}" PARENT_SCOPE)
endfunction()
message(STATUS ready)
set(i 0)
set(digests "")
while(i LESS 2000000000)
  math(EXPR i "${i} + 1")
  turn(${i} turned)
  list(APPEND digests ${turned})
  list(LENGTH digests many)
  if(many GREATER 200)
    list(SORT digests)
    set(digests "")
  endif()
endwhile()
"#;
    interpreted("cmake -P", dir, text)
}

/// nginx's worker, which serves one file over kept connections.
pub(crate) fn nginx(dir: &Path) -> Real {
    // Free a moment ago; who takes it in between makes the test fail, not lie.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    fs::write(dir.join("page.html"), "x".repeat(5000)).expect("a file");
    let config = dir.join("nginx.conf");
    let path = dir.display();
    fs::write(
        &config,
        format!(
            "user root; daemon off; worker_processes 1; pid {path}/pid; error_log {path}/error.log;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log {path}/access.log; keepalive_requests 1000000000; gzip on; gzip_types *;\n\
             server {{ listen 127.0.0.1:{port}; root {path}; }} }}\n"
        ),
    )
    .expect("a file");
    let mut server = on_cpu(SERVER, "/usr/sbin/nginx");
    server
        .arg("-p")
        .arg(dir)
        .arg("-e")
        .arg(dir.join("error.log"))
        .arg("-c")
        .arg(&config);
    let master = load(&mut server);
    let mut real = Real {
        pid: master.id(),
        children: vec![master],
    };
    until("nginx listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    real.pid = only_child(real.pid);
    let url = format!("http://127.0.0.1:{port}/page.html");
    let mut client = on_cpu(CLIENT, "ab");
    client.args("-q -k -c 4 -n 2000000 -H Accept-Encoding:gzip".split(' '));
    real.children.push(load(client.arg(&url)));
    real
}

fn only_child(pid: u32) -> u32 {
    let children =
        || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    until("one child", || !children().is_empty());
    children().trim().parse().expect("one child")
}
