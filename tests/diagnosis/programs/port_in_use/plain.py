import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist


class Status(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"training\n")


def serve_status():
    server = ThreadingHTTPServer(("", int(os.environ["MASTER_PORT"])), Status)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("status page at", server.server_address, flush=True)


if __name__ == "__main__":
    if os.environ["RANK"] == "0":
        serve_status()
    dist.init_process_group("gloo")
    x = torch.ones(4)
    for step in range(100):
        dist.all_reduce(x)
        print(f"step {step}", flush=True)
