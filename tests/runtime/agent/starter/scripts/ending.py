"""Ends in the way that its argument names, with all that can be seen of a teardown."""

import atexit
import os
import signal
import sys
import threading
import time


class Loud:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("gone", self.name, sys is not None and sys.is_finalizing(), flush=True)


class Odd(BaseException):
    pass


def late(word):
    print("atexit", word, flush=True)


def hook(kind, value, trace):
    print("hook", kind.__name__, value, trace.tb_lineno, trace.tb_frame.f_back, flush=True)


def deep(level):
    return deep(level + 1)


def chain():
    try:
        1 / 0
    except ZeroDivisionError as error:
        error.add_note("a note")
        raise ValueError("second") from error


def background():
    time.sleep(0.2)
    print("thread ends", flush=True)


def thread_raises():
    thread = threading.Thread(target=chain, name="worker")
    thread.start()
    thread.join()


def pipe():
    os.close(1)
    print("nowhere")


def group():
    raise ExceptionGroup("several", [ValueError(1), OSError(2, "two")])


def unraisable():
    Loud.__del__ = lambda self: 1 / 0


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


first, _cycle = Loud("global"), Loud("cycle")
_cycle.me = _cycle
sys.stdout.write("unfinished ")
sys.stderr.write("error line\n")
atexit.register(late, "one")
atexit.register(late, "two")
ways = {
    "end": lambda: None,
    "exit": lambda: sys.exit(),
    "exit-0": lambda: sys.exit(0),
    "exit-3": lambda: sys.exit(3),
    "exit-256": lambda: sys.exit(256),
    "exit-minus": lambda: sys.exit(-1),
    "exit-text": lambda: sys.exit("the text"),
    "exit-tuple": lambda: sys.exit((1, "x")),
    "exit-true": lambda: sys.exit(True),
    "raise": lambda: chain(),
    "odd": lambda: (_ for _ in ()).throw(Odd("odd")),
    "group": group,
    "deep": lambda: deep(0),
    "interrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt()),
    "sigint": interrupt,
    "sigterm": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "sigsegv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "sigpipe": lambda: os.kill(os.getpid(), signal.SIGPIPE),
    "abort": os.abort,
    "_exit": lambda: os._exit(9),
    "hook": lambda: (setattr(sys, "excepthook", hook), chain()),
    "bad-hook": lambda: (setattr(sys, "excepthook", lambda *_: 1 / 0), chain()),
    "thread": lambda: threading.Thread(target=background).start(),
    "thread-raises": thread_raises,
    "daemon": lambda: threading.Thread(target=time.sleep, args=(99,), daemon=True).start(),
    "atexit-raises": lambda: atexit.register(chain),
    "pipe": pipe,
    "unraisable": unraisable,
    "no-stdout": lambda: sys.stdout.close(),
    "exec": lambda: os.execv("/bin/echo", ["echo", "replaced"]),
    "fork": lambda: os.fork() and os.wait(),
}
if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(*ways)
    else:
        ways[sys.argv[1]]()
        print("returned", flush=sys.argv[1] != "no-stdout")
