"""Threads of Python that wait for each other for ever: the workloads' protocol. Of each thread that waits, the program knows the line, and
which thread has the lock."""
import json
import os
import sys
import threading
import time
from queue import SimpleQueue

FUTEX = {"x86_64": "202", "aarch64": "98"}[os.uname().machine]
AT_ONCE_S = 0.001

waits = {}


class Lock:
    """A lock, and the thread that has it."""

    def __init__(self, lock):
        self.lock, self.tid = lock, 0


def mine():
    return threading.get_native_id()


def begin(lock, function, line):
    name = function.__qualname__ if sys.version_info >= (3, 11) else function.__name__
    waits[mine()] = {"tid": mine(), "function": name, "line": line, "lock": lock}


def leave_traces(locks):
    """Takes locks within each other and gives them back: their values stay behind above the end of the frame's stack."""
    with locks[0].lock:
        with locks[1].lock:
            with locks[2].lock:
                pass


class Ring:
    def __init__(self):
        self.locks = [Lock(threading.Lock()), Lock(threading.RLock()), Lock(threading.Lock())]
        self.all_have = threading.Barrier(len(self.locks))

    def turn(self, place):
        own, other = self.locks[place], self.locks[(place + 1) % len(self.locks)]
        leave_traces([Lock(threading.Lock()) for _ in range(3)])
        with own.lock:
            own.tid = mine()
            self.all_have.wait()
            try:
                begin(other, Ring.turn, "with other.lock:")
                with other.lock:
                    raise AssertionError("a ring of locks")
            finally:
                raise AssertionError("it goes on")


def wait_behind(other):
    begin(other, wait_behind, "other.lock.acquire()")
    other.lock.acquire()


def rest(own, started):
    with own.lock:
        own.tid = mine()
        # The stack has more than the lock now.
        for number in range(1):
            try:
                started.set()
                time.sleep(1000 + number)
            finally:
                pass


def take_by_hand(own, started):
    own.lock.acquire()
    started.set()
    time.sleep(1000)


def wait_in_a_block(one):
    begin(one, wait_in_a_block, "with one.lock:")
    with one.lock:
        raise AssertionError("somebody rests in it")


class OwnCondition(threading.Condition):
    pass


def wait_for_an_event_of_a_lock(lock, started):
    """The lock of a condition may be taken by itself."""
    condition = OwnCondition(lock)
    with lock:
        started.set()
        condition.wait()


def give_away_by_hand(lock, started):
    with lock:
        lock.release()
        started.set()
        time.sleep(1000)


class Connection:
    """Its blocks take no lock, though it has one."""

    def __init__(self):
        self._lock = threading.Lock()
        self.acquire = self._lock.acquire

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def use(busy):
    with busy:
        begin(Lock(busy._lock), use, "busy.acquire()")
        busy.acquire()


def wait_for_work(queue):
    queue.get()


def wait_for_an_event(own, shared, started):
    """A condition's lock is given away meanwhile, the other one is not."""
    with own.lock:
        own.tid = mine()
        with shared:
            started.set()
            shared.wait()


def sleeps_for_ever(tid):
    """In a futex call without a limit; a thread that waits for the interpreter has one."""
    with open(f"/proc/self/task/{tid}/syscall") as file:
        words = file.read().split()
    return words[0] == FUTEX and words[4] == "0x0"


def started(target, *arguments):
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def main():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    ring = Ring()
    for place in range(len(ring.locks)):
        started(ring.turn, place)
    shared, outer, has_begun = threading.Condition(), Lock(threading.Lock()), threading.Event()
    others = []
    event = started(wait_for_an_event, outer, shared, has_begun)
    has_begun.wait()
    started(wait_behind, outer)
    for hold, lock in (rest, threading.RLock()), (take_by_hand, threading.RLock()), (rest, shared):
        own, has_begun = Lock(lock), threading.Event()
        started(hold, own, has_begun)
        has_begun.wait()
        started(wait_behind, own)
        started(wait_in_a_block, own)
    for other, holds in (wait_for_an_event_of_a_lock, True), (give_away_by_hand, False):
        own, has_begun = Lock(threading.Lock()), threading.Event()
        others.append(started(other, own.lock, has_begun))
        has_begun.wait()
        has_begun.clear()
        started(rest, own, has_begun)
        has_begun.wait()
        # One of two in a block has given it away, and nobody knows which.
        started(wait_behind, own if holds else Lock(own.lock))
    connection = Connection()
    connection.acquire()
    started(use, connection)
    idle = started(wait_for_work, SimpleQueue())
    asleep = [event.native_id, others[0].native_id, idle.native_id]
    expected = len(ring.locks) + 10
    while len(waits) < expected or not all(map(sleeps_for_ever, [*waits, *asleep])):
        time.sleep(AT_ONCE_S)
    for wait in waits.values():
        # None where it was taken by hand.
        wait["holder"] = wait.pop("lock").tid
        print(json.dumps(wait), flush=True)
    print("done", flush=True)
    sys.stdin.readline()


main()
