"""`make test-native` fails for what it is there to find: its runner refuses faults that are planted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[[str, str], Path]
ROOT = Path(__file__).resolve().parents[2]
FLAGS = {  # as CMakeLists.txt has them
    "address": ["-fsanitize=address,undefined", "-static-libubsan", "-Wl,--exclude-libs,libubsan.a"],
    "thread": ["-fsanitize=thread"],
}
FAULTS = """
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>

extern "C" void overflow(int size) {
    char *memory = static_cast<char *>(malloc(size));
    memset(memory, 1, size + 1);
    free(memory);
}

extern "C" int undefined(int size) { return INT_MAX - 8 + size; }

extern "C" void leak(int size) {
    static char *volatile kept;
    kept = static_cast<char *>(malloc(size));
    kept = nullptr;
}

extern "C" void race(int size) {
    static int value;
    auto add = [=] {
        for (int turn = 0; turn < 1000; ++turn)
            value += size;
    };
    std::thread one(add), other(add);
    one.join(), other.join();
}

extern "C" void harmless(int) {}
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.cpp").write_text(FAULTS)

    def built(name: str, kind: str) -> Path:
        module = folder / f"{name}-{kind}.so"
        command = ["c++", "-shared", "-fPIC", "-g", "-O0", "-pthread", *FLAGS[kind], "-o", module]
        found = subprocess.run([*command, folder / "faults.cpp"], capture_output=True, text=True, check=False)
        if "cannot find" in found.stderr:
            pytest.skip("the compiler has no sanitizers")
        assert found.returncode == 0, found.stderr
        return module

    return built


@pytest.mark.parametrize(
    ("kind", "fault", "said"),
    [
        ("address", "overflow", "heap-buffer-overflow"),
        ("address", "undefined", "signed integer overflow"),
        ("address", "leak", "Direct leak of 16 byte(s)"),
        ("thread", "race", "data race"),
        ("address", "harmless", ""),
        ("thread", "harmless", ""),
    ],
)
def test_a_planted_fault_is_refused(build: Build, kind: str, fault: str, said: str) -> None:
    module = build("_native_planted", kind)
    done = sanitized(kind, module, fault)
    assert done.returncode == (1 if said else 0), done.stderr
    assert said in done.stderr
    assert ("sanitized: reports of" in done.stderr) == bool(said)


def test_a_leak_of_others_is_none_of_ours(build: Build) -> None:
    module = build("foreign", "address")
    done = sanitized("address", module, "leak")
    assert done.returncode == 0, done.stderr


def test_a_command_that_fails_without_a_report_fails() -> None:
    command = [sys.executable, "scripts/sanitized.py", "thread", sys.executable, "-c", "raise SystemExit(7)"]
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == 7


def sanitized(kind: str, module: Path, fault: str) -> subprocess.CompletedProcess[str]:
    # In a process of the command's, as most are that are looked at.
    code = f"import ctypes; ctypes.CDLL({str(module)!r}).{fault}(16)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    command = [sys.executable, "scripts/sanitized.py", kind, sys.executable, "-c", outer]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
