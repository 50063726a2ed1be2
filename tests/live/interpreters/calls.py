"""The workloads' protocol, spoken by known functions: a -> b -> hot computes, wait_outer -> wait_inner sleeps."""
import json
import os
import sys
import time

BURN_S = 2
NAPS = 10


def hot(until):
    total = 0
    while time.thread_time() < until:
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
    before = time.monotonic_ns()
    for _ in range(NAPS):
        wait_inner()
    return time.monotonic_ns() - before


def main():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    a(time.thread_time() + BURN_S)
    print(json.dumps({"wait_ns": wait_outer()}), flush=True)
    print("done", flush=True)
    sys.stdin.readline()


main()
