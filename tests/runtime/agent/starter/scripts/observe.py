"""Prints everything that a process can see of itself and that is not to differ from start to start."""

import builtins
import gc
import locale
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback


def tell(name, value):
    print(f"{name}: {value!r}")


def stream(file):
    raw = getattr(file.buffer, "raw", file.buffer)
    return (
        *(
            file.name,
            file.mode,
            file.encoding,
            file.errors,
            file.newlines,
            file.line_buffering,
            file.write_through,
        ),
        *(
            file.isatty(),
            file.seekable(),
            type(file.buffer).__name__,
            type(raw).__name__,
            raw.mode,
            raw.closefd,
        ),
    )


NATIVE = 3 << 31  # two signals of the C library's own, which it handles once there has been a thread
here = {name: value for name, value in globals().items() if name.startswith("__")}
here.pop("__warningregistry__", None)
tell("globals", list(globals()))
tell("main", {n: re.sub("0x[0-9a-f]+", "", str(v)) for n, v in here.items()})
tell("main is main", sys.modules["__main__"].__dict__ is globals())
tell("builtins", __builtins__ is builtins)
outer = sys._getframe().f_back
tell(
    "outer frame",
    outer and (outer.f_code.co_filename, outer.f_code.co_name, outer.f_back and outer.f_back.f_code.co_name),
)
tell("stack", traceback.format_stack())
for name in (
    *(
        "argv",
        "orig_argv",
        "path",
        "flags",
        "executable",
        "_base_executable",
        "prefix",
        "exec_prefix",
        "base_prefix",
    ),
    *("base_exec_prefix", "warnoptions", "_xoptions", "dont_write_bytecode", "pycache_prefix", "platlibdir"),
    *("int_info", "version", "stdlib_dir", "_stdlib_dir", "_framework", "_git", "ps1"),
):
    tell(name, getattr(sys, name, None))
tell("hooks", (sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__))
tell("unraisable", (sys.unraisablehook is sys.__unraisablehook__, sys.gettrace(), sys.getprofile()))
tell("path hooks", [str(hook).partition(" at ")[0] for hook in sys.path_hooks])
tell("finders", [str(finder).partition(" at ")[0] for finder in sys.meta_path])
tell("ours", [name for name in sys.modules if "milkweed" in name])
tell("sitecustomize", getattr(sys.modules.get("sitecustomize"), "__file__", None))
tell("limits", (sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()))
tell("gc", (gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks))
tell("encodings", (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), sys.getdefaultencoding()))
tell("locale", (locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False)))
tell("zone", (time.tzname, time.timezone))
for name in ("stdin", "stdout", "stderr"):
    tell(name, stream(getattr(sys, name)))
    tell(f"{name} twice", getattr(sys, name) is getattr(sys, f"__{name}__"))
tell("input", sys.stdin.read())

environ = dict(os.environ)
tell("environ", environ)
tell("environb", {os.fsdecode(name): os.fsdecode(value) for name, value in os.environb.items()} == environ)
with open("/proc/self/environ", "rb") as file:
    shown = [os.fsdecode(item) for item in file.read().split(b"\0")[:-1]]
tell("shown environ", shown)
inherited = subprocess.run(["/usr/bin/env", "-0"], capture_output=True, check=True).stdout.split(b"\0")[:-1]
tell("inherited", sorted(map(os.fsdecode, inherited)))
with open("/proc/self/cmdline", "rb") as file:
    tell("command line", file.read())
with open("/proc/self/comm") as file:
    tell("comm", file.read())
tell("exe", os.readlink("/proc/self/exe"))
tell("directory", os.getcwd())
tell("session", (os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()))
tell("parent", os.getppid())
tell("ids", (os.getresuid(), os.getresgid(), os.getgroups(), os.getpriority(os.PRIO_PROCESS, 0)))
tell("affinity", sorted(os.sched_getaffinity(0)))
tell("policy", os.sched_getscheduler(0))
umask = os.umask(0o77)
os.umask(umask)
tell("umask", oct(umask))
tell(
    "rlimits", {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")}
)
with open("/proc/self/status") as file:
    kept = ("SigPnd", "ShdPnd", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Umask", "TracerPid")
    lines = file.read().splitlines()
for line in lines:
    name, _, value = line.partition(":\t")
    if line.startswith(("SigBlk", "SigIgn", "SigCgt")):
        tell(name, hex(int(value, 16) & ~NATIVE))
    elif name in kept:
        tell(name, value)
tell("handlers", {n: str(signal.getsignal(n)).partition(" at ")[0] for n in signal.valid_signals()})
tell("mask", signal.pthread_sigmask(signal.SIG_BLOCK, []))
with open("/proc/self/oom_score_adj") as file:
    tell("oom", file.read())
with open("/proc/self/cgroup") as file:
    tell("cgroup", file.read())
tell(
    "namespaces",
    {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")} and True,
)
tell("python threads", (threading.active_count(), threading.main_thread() is threading.current_thread()))
tell("thread", (threading.main_thread().native_id == os.getpid(), threading.main_thread().name))
tell("kernel threads", len(os.listdir("/proc/self/task")))
descriptors = {}
for name in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        found = os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:
        continue
    with open(f"/proc/self/fdinfo/{name}") as file:
        flags = next(line for line in file if line.startswith("flags"))
    kind = stat.S_IFMT(os.fstat(int(name)).st_mode)
    descriptors[name] = (found.replace(str(os.getpid()), "PID"), flags, kind, os.get_inheritable(int(name)))
tell("descriptors", descriptors)
with open(f"/proc/self/task/{os.getpid()}/children") as file:
    tell("children", file.read())
