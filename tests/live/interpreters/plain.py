"""Python as people write it, which knows where its time went: the workloads' protocol, spoken by a class, a generator, a
comprehension, a task, a key function that C calls, and by threads that sleep and wait for a lock."""
import asyncio
import json
import os
import sys
import threading
import time

# Each kind's CPU time by its own clock, and the turns that a fast machine makes in it: stolen time is no work.
BURN_NS = 600_000_000
NAPS = 12
NAP_S = 0.03


def spin(until_ns):
    total = 0
    while time.thread_time_ns() < until_ns:
        for i in range(2000):
            total += i & 7
    return total


class Worker:
    def __init__(self):
        self.total = 0

    def crunch(self, until_ns):
        self.total += spin(until_ns)

    @property
    def crunched(self):
        self.crunch(time.thread_time_ns() + BURN_NS)
        return self.total


def numbers(end_ns):
    while time.thread_time_ns() < end_ns:
        yield spin(min(end_ns, time.thread_time_ns() + 1_000_000))


def drain():
    total = 0
    for number in numbers(time.thread_time_ns() + BURN_NS):
        total += number
    return total


def squares():
    start = time.thread_time_ns()
    return [spin(start + BURN_NS * part // 20) for part in range(1, 21)]


def ranked():
    start = time.thread_time_ns()

    def weigh(part):
        return spin(start + BURN_NS * part // 20)

    return sorted(range(1, 21), key=weigh)


def work_in_task():
    async def crawl(start):
        total = 0
        for part in range(1, 21):
            total += spin(start + BURN_NS * part // 20)
            await asyncio.sleep(0)
        return total

    return asyncio.run(crawl(time.thread_time_ns()))


KINDS = {"property": lambda: Worker().crunched, "generator": drain, "comprehension": squares, "key": ranked, "task": work_in_task}


def sleepy():
    def nap():
        time.sleep(NAP_S)

    for _ in range(NAPS):
        nap()


def wait_for(lock, times):
    for _ in range(NAPS):
        turn.acquire()
        start = time.monotonic_ns()
        with lock:
            times.append(time.monotonic_ns() - start)
        done.release()


turn = threading.Semaphore(0)
done = threading.Semaphore(0)


def hold(lock):
    for _ in range(NAPS):
        with lock:
            turn.release()
            time.sleep(NAP_S)
        done.acquire()


def timed(call):
    start = time.monotonic_ns()
    call()
    return {"start_ns": start, "end_ns": time.monotonic_ns()}


def main():
    lock, times = threading.Lock(), []
    waiter = threading.Thread(target=wait_for, args=(lock, times), name="waiter")
    waiter.start()
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    said = {"tid": threading.get_native_id(), "waiter": waiter.native_id}
    for kind, call in KINDS.items():
        said[kind] = timed(call)
    said["naps"] = timed(sleepy)
    hold(lock)
    waiter.join()
    said["locked_ns"] = sum(times)
    print(json.dumps(said), flush=True)
    print("done", flush=True)
    sys.stdin.readline()


main()
