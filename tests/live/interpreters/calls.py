"""The workloads' protocol, spoken by known functions: a -> b -> hot computes, wait_outer -> wait_inner sleeps."""
import json
import os
import sys
import time

# By its CPU time and by the turns that a fast machine makes in it: stolen time is no work.
BURN_S = 2
TURNS = 8000
NAPS = 10


def hot(until):
    total = turns = 0
    while turns < TURNS or time.thread_time() < until:
        turns += 1
        for i in range(10000):
            total += i & 7
    return total


def b(until):
    return hot(until)


def a(until):
    return b(until)


def wait_inner():
    time.sleep(0.05)


def wait_outer():
    for _ in range(NAPS):
        wait_inner()


def main():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    start = time.monotonic_ns()
    a(time.thread_time() + BURN_S)
    end = time.monotonic_ns()
    wait_outer()
    times = {"start_ns": start, "end_ns": end, "waited_ns": time.monotonic_ns()}
    print(json.dumps(times), flush=True)
    print("done", flush=True)
    sys.stdin.readline()


main()
