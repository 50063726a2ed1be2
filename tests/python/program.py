"""Threads that stand still in known places, and what the interpreter says of their frames: a line of JSON, then again for each line that
is read, until the input ends."""

import functools
import itertools
import json
import signal
import sys
import threading

gate = threading.Lock()
gate.acquire()
# A function that is called `stand` waits in its last line.
standing = {}


def stand():
    standing[threading.get_ident()] = sys._getframe()
    gate.acquire()


def called_from_c(*arguments):
    stand()
    return 0


def plain(function, *arguments):
    return function(*arguments)


class Handler:
    def __init__(self):
        self.items = [3, 1, 2]

    def get(self):
        return sorted(self.items, key=self.key_from_c)

    def key_from_c(self, item):
        plain(stand)
        return item

    @staticmethod
    def fixed():
        class Local:
            def method(self):
                return (lambda: stand())()
        return Local().method()

    @property
    def value(self):
        return stand()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(
            *arguments,
        )

    return wrapper


@decorated
@decorated
def through_decorators(
    first,
    second=(
        1,
        2,
    ),
):
    total = (
        first
        + sum(second)
        + called(
            first,


            second,
        )
    )
    return total


def called(first, second): return [
    stand()
    for _ in second
]


def generator():
    yield 1
    stand()
    yield 2


def delegating():
    yield from generator()


def through_generators():
    for _ in delegating():
        pass


def through_next():
    numbers = generator()
    next(numbers)
    next(numbers)


def deep(depth):
    if depth:
        return deep(depth - 1)
    return stand()


def through_map():
    return list(map(called_from_c, [1]))


def through_reduce():
    return functools.reduce(called_from_c, [1, 2])


def in_a_comprehension():
    return {key: [stand() for _ in range(2)] for key in (1,)}


class Made:
    def __init__(self):
        stand()


def make(): return Made()


class Specialised:
    def __init__(self, stands):
        if stands:
            stand()


def through_a_specialised_call():
    for stands in [False] * 100 + [True]:
        Specialised(stands)


async def coroutine():
    stand()


async def awaiting():
    await coroutine()


def through_coroutines():
    try:
        awaiting().send(None)
    except StopIteration:
        pass


def in_handlers():
    try:
        raise ValueError
    except ValueError:
        with threading.Lock():
            try:
                pass
            finally:
                stand()


NAMED = """
def größe():
    return имя()
{}
def имя():
    return (


        _𐌀()
    )
def _𐌀():
    return renamed()
def renamed():
    stand()
code = renamed.__code__
names = [name for name in ("co_name", "co_qualname") if hasattr(code, name)]
renamed.__code__ = code.replace(**{{name: "\\x1b[31m;\\n" for name in names}})
"""


def of_many_names():
    space = {"stand": stand}
    source = NAMED.format("\n" * 700)
    exec(compile(source, "/tmp/папка/日本 \U0001f600.py", "exec"), space)
    return space["größe"]()


def importing(directory):
    sys.path.insert(0, directory)
    __import__("usekit_stands")


replaced = []
numbers = itertools.count(100)


def replace():
    """Code of the same shape at the same place as the last one's, which is freed."""
    place = id(replaced[0].__code__) if replaced else None
    others = []
    while True:
        others.append(replaced and replaced.pop())
        others.clear()
        name = f"function_{next(numbers)}"
        space = {}
        exec(f"def {name}(): return {name}", space)
        replaced.append(space.pop(name))
        if place in (None, id(replaced[0].__code__)):
            return [id(replaced[0].__code__), name]


def frames(frame):
    found = []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        place = [frame.f_lineno, frame.f_lasti]
        found.append([id(code), name, code.co_filename, code.co_firstlineno, *place])
        frame = frame.f_back
    return found


def main():
    threading.stack_size(256 << 20)
    sys.setrecursionlimit(20000)
    functions = [
        (Handler().get,), (Handler.fixed,), (lambda: Handler().value,), (through_decorators, 1), (through_generators,), (through_next,),
        (deep, 3000), (through_map,), (through_reduce,), (in_a_comprehension,), (make,), (through_a_specialised_call,),
        (through_coroutines,), (in_handlers,), (of_many_names,), (importing, sys.argv[1]),
    ]
    threads = [threading.Thread(target=plain, args=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    # A thread lets go of the interpreter in its last line, within the call.
    last = stand.__code__.co_firstlineno + 2
    while len(standing) < len(threads) or any(frame.f_lineno != last for frame in list(standing.values())):
        pass
    released = []
    signal.signal(signal.SIGUSR1, lambda *_: released.append(None))
    for line in sys.stdin:
        if line == "hold\n":
            # No other thread wants it: nobody takes it away.
            print(threading.get_native_id(), flush=True)
            while not released:
                pass
            continue
        if line == "replace\n":
            print(json.dumps(replace()), flush=True)
            continue
        said = {}
        all_frames = sys._current_frames()
        for thread in threads:
            said[thread.native_id] = frames(all_frames[thread.ident])
        print(json.dumps(said), flush=True)


main()
