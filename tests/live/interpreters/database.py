"""A database of SQLite's that another process has locked, or another connection of this one ("own"), in its log ("wal") or not: the
workloads' protocol. It knows who that is, and how long it has tried."""
import json
import os
import sqlite3
import sys
import tempfile
import time

PATIENCE_S = 1.0


def connect(path, patience_s=0.0):
    connection = sqlite3.connect(path, timeout=patience_s, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    return connection


def hold(path):
    connection = connect(path)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def hold_in_child(path):
    """A process that has it until this one ends."""
    mine, its = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(mine[1])
        connection = hold(path)
        os.write(its[1], b"!")
        os.read(mine[0], 1)
        connection.close()
        os._exit(0)
    os.read(its[0], 1)
    return child


def pay(connection):
    begin = time.monotonic_ns()
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return begin, time.monotonic_ns()
    raise AssertionError("nobody had it")


def main():
    mode = sys.argv[1]
    with tempfile.TemporaryDirectory(dir=sys.argv[2]) as directory:
        path = os.path.join(directory, "shop.db")
        first = connect(path)
        first.execute(f"PRAGMA journal_mode={'WAL' if mode == 'wal' else 'DELETE'}")
        first.execute("CREATE TABLE orders (id INTEGER)")
        first.close()
        if mode == "own":
            holder, connection = os.getpid(), hold(path)
        else:
            holder = hold_in_child(path)
        mine = connect(path, PATIENCE_S)
        print("ready", os.getpid(), flush=True)
        sys.stdin.readline()
        begin_ns, end_ns = pay(mine)
        print(json.dumps({"holder": holder, "file": path, "begin_ns": begin_ns, "end_ns": end_ns}))
        print("done", flush=True)
        sys.stdin.readline()


main()
