"""One thread of Python computes in C and keeps the interpreter to itself, another one needs it: the workloads' protocol. The second
knows how long it waited: the time that passed without its own CPU time and without what it waited for a CPU."""
import json
import os
import sys
import threading
import time

ROUNDS = 7
NUMBERS = range(12_000_000)
PAUSE_S = 0.03
AT_ONCE_S = 0.001
FUTEX = {"x86_64": "202", "aarch64": "98"}[os.uname().machine]


def schedule():
    with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
        cpu_ns, delay_ns, _ = file.read().split()
    return int(cpu_ns), int(delay_ns)


def sleeps_without_limit(tid):
    """In a futex call."""
    with open(f"/proc/self/task/{tid}/syscall") as file:
        words = file.read().split()
    return words[0] == FUTEX and words[4] == "0x0"


class Desk:
    def __init__(self):
        self.asked, self.served = threading.Lock(), threading.Lock()
        self.asked.acquire()
        self.served.acquire()
        self.asked_ns, self.waited_ns, self.tries_ns, self.tid = 0, 0, 0, 0
        self.comes = None

    def serve(self):
        self.tid = threading.get_native_id()
        for turn in range(ROUNDS):
            cpu_ns, delay_ns = schedule()
            self.comes = turn
            self.asked.acquire()
            end_ns = time.monotonic_ns()
            now_cpu_ns, now_delay_ns = schedule()
            self.tries_ns += now_cpu_ns - cpu_ns
            self.waited_ns += end_ns - self.asked_ns - (now_cpu_ns - cpu_ns) - (now_delay_ns - delay_ns)
            self.served.release()

    def ask(self):
        for turn in range(ROUNDS):
            time.sleep(PAUSE_S)
            # A thread that waits for the interpreter has a limit; one that waits for the lock has none.
            while self.comes != turn or not sleeps_without_limit(self.tid):
                time.sleep(AT_ONCE_S)
            self.asked_ns = time.monotonic_ns()
            self.asked.release()
            # Nothing is interpreted meanwhile.
            sum(NUMBERS)
            self.served.acquire()


def main():
    desk = Desk()
    clerk = threading.Thread(target=desk.serve)
    clerk.start()
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    desk.ask()
    clerk.join()
    is_new = sys.version_info >= (3, 11)
    said = {
        "tid": threading.get_native_id(),
        "clerk": desk.tid,
        "waited_ns": desk.waited_ns,
        "tries_ns": desk.tries_ns,
        "rounds": ROUNDS,
        "function": Desk.serve.__qualname__ if is_new else Desk.serve.__name__,
        "has_numbers": is_new,
    }
    print(json.dumps(said), flush=True)
    print("done", flush=True)
    sys.stdin.readline()


main()
