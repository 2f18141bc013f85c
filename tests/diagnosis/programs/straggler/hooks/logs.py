import sys
import time


class Logs:
    def __init__(self):
        self.started = time.monotonic()

    def after_step(self, trainer, step, loss):
        took = time.monotonic() - self.started
        sys.stderr.write(f"\r{step} steps, {took / (step + 1):.3f} s/step, loss {loss:.4f}")
        if step % 5 == 0:
            sys.stderr.write("\n")
        sys.stderr.flush()
