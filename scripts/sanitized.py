"""Runs a command under a sanitizer's runtime, and fails if any of its processes reported anything.

python scripts/sanitized.py address|thread COMMAND ...

`address` looks for undefined behaviour and leaks too. Native code is looked at as far as it was built for
the sanitizer (`scripts/test-native.sh`). A leak counts if a module of ours was on the stack when it was
allocated: what the interpreter itself leaves at its end is none of our business.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

OURS = "_native"
KNOWN = Path(__file__).with_name("thread-sanitizer.supp")
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
_NO_LEAKS_HERE = "LeakSanitizer has encountered a fatal error"
_FRAME = '"    #%n %p %F %L %M"'  # with its module, wherever there are lines too


def faults(report: str) -> str:
    """A process's report without what is not ours; empty if nothing is left."""
    return "\n\n".join(block for block in report.strip().split("\n\n") if not _is_foreign(block))


def _is_foreign(block: str) -> bool:
    if block.lstrip().startswith(("Direct leak", "Indirect leak")):
        return OURS not in block
    return "LeakSanitizer: detected memory leaks" in block or block.rstrip().endswith("allocation(s).")


def environment(kind: str, folder: Path, *, leaks: bool = True) -> dict[str, str]:
    """Reports go to files in `folder`, one a process."""
    common: dict[str, object] = {"log_path": folder / "report", "stack_trace_format": _FRAME}
    options: dict[str, dict[str, object]] = {
        "ASAN_OPTIONS": {**common, "abort_on_error": 1, "detect_leaks": int(leaks)},
        "LSAN_OPTIONS": {"exitcode": 0, "print_suppressions": 0},
        "UBSAN_OPTIONS": {**common, "print_stacktrace": 1},
        # Forked children of processes with threads are looked at as well.
        "TSAN_OPTIONS": {**common, "die_after_fork": 0, "suppressions": KNOWN, "print_suppressions": 0},
    }
    # With libstdc++ as well: else what is thrown in a module is not intercepted.
    preloaded = [_library(RUNTIMES[kind]), _library("libstdc++.so")]
    return {
        **os.environ,
        **{
            name: ":".join(f"{key}={value}" for key, value in named.items())
            for name, named in options.items()
        },
        "LD_PRELOAD": " ".join(preloaded),
        "PYTHONMALLOC": "malloc",  # every object is an allocation that the sanitizer knows
        "OPENBLAS_NUM_THREADS": "1",
    }


def _library(name: str) -> str:
    found = subprocess.run(
        [os.environ.get("CXX", "c++"), f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not os.path.isabs(found):
        raise SystemExit(f"sanitized: the compiler has no {name}")
    return os.path.realpath(found)


def _leaks_are_found() -> bool:
    """A process that may not be traced cannot look for leaks."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", ""], env=environment("address", Path(folder)), check=False)
        return not any(_NO_LEAKS_HERE in file.read_text() for file in Path(folder).iterdir())


def run(kind: str, command: Sequence[str]) -> int:
    """The command's status, 1 if there were reports."""
    leaks = kind == "address" and _leaks_are_found()
    if kind == "address" and not leaks:
        print("sanitized: leaks are not looked for, since this process may not be traced", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        env = environment(kind, Path(folder), leaks=leaks)
        status = subprocess.run(command, env=env, check=False).returncode
        found = [
            text
            for file in sorted(Path(folder).iterdir())
            if (text := faults(file.read_text("utf-8", "replace")))
        ]
    for text in found:
        print(text, file=sys.stderr)
    if found:
        print(f"sanitized: reports of {len(found)} processes, by the {kind} sanitizer", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
