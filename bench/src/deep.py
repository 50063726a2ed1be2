"""Asks for its parent for ever from so many functions deep; counts its turns in a file that it maps."""

import mmap
import os
import struct
import sys


def ask(turns):
    count = 0
    while True:
        for _ in range(1000):
            os.getppid()
        count += 1000
        struct.pack_into("=q", turns, 0, count)


def deep(left, turns):
    return ask(turns) if left == 0 else deep(left - 1, turns) + 1


if __name__ == "__main__":
    with open(sys.argv[2], "r+b") as file:
        deep(int(sys.argv[1]), mmap.mmap(file.fileno(), 8))
