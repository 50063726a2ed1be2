"""An event loop whose handler asks a database that is slow, and knows how long it waited for it: the workloads' protocol."""
import asyncio
import json
import os
import socket
import sys
import time

TURNS = 50


def serve(connection):
    while connection.recv(1):
        time.sleep(0.004)
        connection.sendall(b"!")


def ask():
    start = time.monotonic_ns()
    database.sendall(b"?")
    database.recv(1)
    waits.append(time.monotonic_ns() - start)


def turn():
    ask()
    if len(waits) == TURNS:
        loop.stop()
    else:
        loop.call_later(0.01, turn)


database, other = socket.socketpair()
if not os.fork():
    database.close()
    serve(other)
    sys.exit()
other.close()
waits = []
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
loop = asyncio.new_event_loop()
loop.call_soon(turn)
loop.run_forever()
print(json.dumps({"asked_ns": sum(waits)}), flush=True)
print("done", flush=True)
sys.stdin.readline()
