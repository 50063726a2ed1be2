"""Three functions compute in turns from the word on, each for its own time by the thread's clock, until they are killed."""
import os
import sys
import time

# Seconds a turn; no two samplers keep step with their sum.
TURNS = {"short": 0.011, "middle": 0.023, "long": 0.037}


def spin(seconds):
    total = 0
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        for i in range(1000):
            total += i & 7
    return total


def short():
    return spin(TURNS["short"])


def middle():
    # Another call on the way: this chain is deeper.
    return [spin(seconds) for seconds in (TURNS["middle"],)]


class Worker:
    def long(self):
        return spin(TURNS["long"])


def main():
    worker = Worker()
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    while True:
        short()
        middle()
        worker.long()


main()
