"""A lock of Python that threads hand on every 20 ms: the workloads' protocol. At every moment two threads or more sleep for it: three have
not got it, and the next one to get it is all that wakes up."""
import os
import sys
import threading
import time

THREADS = 4
HELD_S = 0.02
AT_ONCE_S = 0.001

lock = threading.Lock()
holder = None
turns = 0


def hold():
    """Gives the lock to another thread, and does not ask for it before that one has it."""
    global holder, turns
    with lock:
        holder = threading.get_ident()
        turns += 1
        time.sleep(HELD_S)
    while holder == threading.get_ident():
        time.sleep(AT_ONCE_S)


def work():
    while True:
        hold()


def main():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    for _ in range(THREADS):
        threading.Thread(target=work, daemon=True).start()
    while turns < 2 * THREADS:
        time.sleep(AT_ONCE_S)
    print("done", flush=True)
    sys.stdin.readline()
    sys.stdout.flush()
    os._exit(0)


main()
