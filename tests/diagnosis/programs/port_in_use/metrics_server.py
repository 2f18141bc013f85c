"""Every rank serves its metrics on the same port of its host."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist


class Metrics(BaseHTTPRequestHandler):
    values = {"steps": 0}

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(f"{k} {v}\n" for k, v in self.values.items()).encode())


class Exporter(HTTPServer):
    allow_reuse_address = False


def export(port=28117):
    server = Exporter(("127.0.0.1", port), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        export()
    dist.barrier()
    if dist.get_rank() == 1:
        export()
    total = torch.zeros(1)
    for step in range(100):
        dist.all_reduce(total)
        Metrics.values["steps"] = step
    print("done")
    dist.destroy_process_group()


main()
