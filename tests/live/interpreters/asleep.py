"""Threads that sleep, each in functions that were called in a way of its own."""
import asyncio
import concurrent.futures
import functools
import os
import queue
import re
import threading
import time

NAP_S = 3600


def nap(*_):
    time.sleep(NAP_S)


class Deep:
    @property
    def asleep(self):
        return self.inner(3)

    def inner(self, depth):
        if depth:
            return self.inner(depth - 1)
        return [nap() for _ in range(1)]

    @staticmethod
    def static():
        return Deep().asleep

    @classmethod
    def of_class(cls):
        cls.static()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@decorated
def by_key():
    sorted([2, 1], key=lambda one: nap(one))


def numbers():
    nap()
    yield 1


def nested():
    yield from numbers()


def by_generator():
    return sum(nested())


async def inner():
    nap()


async def outer():
    await inner()


def by_task():
    asyncio.run(outer())


def by_loop():
    asyncio.run(asyncio.sleep(NAP_S))


def by_exec():
    exec(compile("def made():\n    nap()\n\nmade()", "<made>", "exec"), {"nap": nap})


def by_substitution():
    re.sub("a", nap, "a")


def by_map():
    list(map(lambda one: max([one], key=nap), [1]))


class Block:
    def __enter__(self):
        nap()

    def __exit__(self, *_):
        pass


def by_block():
    with Block():
        pass


class Attributes:
    def __getattr__(self, name):
        nap()


def by_attribute():
    return Attributes().absent


def by_queue():
    queue.Queue().get()


def by_lock():
    lock = threading.Lock()
    with lock:
        with lock:
            pass


def by_condition():
    condition = threading.Condition()
    with condition:
        condition.wait()


def main():
    ways = [Deep.of_class, by_key, by_generator, by_task, by_loop, by_exec, by_substitution, by_map, by_block, by_attribute, by_queue,
            by_lock, by_condition]
    for way in ways:
        threading.Thread(target=way, daemon=True).start()
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(int)
    print("ready", os.getpid(), flush=True)
    nap()


main()
