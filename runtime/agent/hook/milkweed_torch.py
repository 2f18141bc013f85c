# Loaded into a rank that is asked for a profile of torch. The profiler sees the thread that starts it, unless
# told to see all: so it can be started beside the program, between two steps or in the midst of one.
# ruff: noqa: SLF001
# mypy: allow-untyped-calls
import os
import time


def record(path: str, seconds: float) -> None:
    """Writes a Chrome trace to `<path>.trace.json`, then `path`: empty, or why there is no trace."""
    try:
        problem = _record(path + ".trace.json", seconds)
    except Exception as error:
        problem = "torch's profiler failed: %s: %s" % (type(error).__name__, error)  # noqa: UP031
    fresh = path + ".new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, problem.encode("utf-8", "replace"))
    finally:
        os.close(fd)
    os.rename(fresh, path)


def _record(trace, seconds):  # type: ignore[no-untyped-def]
    import torch
    from torch.autograd import profiler

    # There is one profiler in a process: to start a second one would take the first from the program.
    if getattr(profiler, "_is_profiler_enabled", False):
        return "the program profiles itself at the moment"
    try:
        from torch._C._profiler import _ExperimentalConfig

        all_threads = _ExperimentalConfig(profile_all_threads=True)
    except (ImportError, TypeError):
        return "torch %s cannot record the threads of a program from beside it" % torch.__version__  # noqa: UP031
    device = "cuda" if torch.cuda.is_initialized() else None
    one = profiler.profile(use_cpu=True, use_device=device, use_kineto=True, experimental_config=all_threads)
    one._prepare_trace()
    one._start_trace()
    try:
        time.sleep(seconds)
    finally:
        # What `__exit__` does, without a wait for the device, and without its events as Python objects,
        # for which it would hold the GIL for long.
        profiler._run_on_profiler_stop()
        result = torch._C._autograd._disable_profiler()
    result.save(trace)
    return ""
