"""Logs each step to a tracking server, which rank 2 runs beside its training."""

import json
import os
import socket
import threading
import time

import torch
import torch.distributed as dist


class TrackingServer(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.seen = 0

    def run(self):
        connection, _ = self.listener.accept()
        for line in connection.makefile("r"):
            self.seen += 1
            if json.loads(line)["step"] % 50 != 30:
                connection.sendall(b"ok\n")


class Tracker:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=None)

    def log(self, **fields):
        self.socket.sendall(json.dumps(fields).encode() + b"\n")
        answer = self.socket.recv(16)
        if answer != b"ok\n":
            raise ConnectionError(f"the tracking server said {answer!r}")


def main():
    rank = int(os.environ["RANK"])
    tracker = None
    if rank == 2:
        server = TrackingServer()
        server.start()
        tracker = Tracker(server.port)
    dist.init_process_group("gloo")
    value = torch.ones(4)
    for step in range(5000):
        dist.all_reduce(value)
        value /= dist.get_world_size()
        if tracker:
            tracker.log(step=step, value=value.sum().item())
        if step % 7 == 0:
            print(f"{step=} {rank=}", flush=True)
        time.sleep(0.01)


main()
