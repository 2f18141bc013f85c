"""The Linux calls of `milkweed.runtime._native`, made against the kernel."""

import ast
import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from milkweed.runtime import _native

BLOCK = 4096
STUB = Path(_native.__file__).parent / "_native.pyi"


def says(*errors: int) -> str:
    """A pattern for the text of an `OSError` with one of these errnos."""
    return "|".join(rf"\[Errno {error}\]" for error in errors)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_stub_names_what_the_module_has() -> None:
    body = ast.parse(STUB.read_text()).body
    declared = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    declared |= {
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert declared == {name for name in dir(_native) if not name.startswith("__")}


def test_a_subreaper_becomes_the_parent_of_orphans() -> None:
    code = """
import os
from milkweed.runtime import _native
assert not _native.is_child_subreaper()
_native.set_child_subreaper()
assert _native.is_child_subreaper()
if os.fork() == 0:
    if os.fork() == 0:
        os._exit(7)
    os._exit(0)
print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)))
_native.set_child_subreaper(False)
assert not _native.is_child_subreaper()
"""
    result = run_python(code)
    assert (result.stdout, result.stderr) == ("[0, 7]\n", "")


def test_a_punched_hole_gives_blocks_back_and_keeps_the_size(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * 64 * BLOCK)
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())
        before = os.fstat(opened.fileno())
        _native.punch_hole(opened.fileno(), 8 * BLOCK, 48 * BLOCK)
        after = os.fstat(opened.fileno())
    assert after.st_size == before.st_size
    assert after.st_blocks <= before.st_blocks - 48 * BLOCK // 512
    content = file.read_bytes()
    assert content[: 8 * BLOCK] == b"x" * 8 * BLOCK
    assert not any(content[8 * BLOCK : 56 * BLOCK])
    assert content[56 * BLOCK :] == b"x" * 8 * BLOCK


@pytest.mark.parametrize(("offset", "length"), [(-1, BLOCK), (0, 0), (0, -BLOCK)])
def test_a_hole_that_cannot_be_is_refused(tmp_path: Path, offset: int, length: int) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * BLOCK)
    with file.open("r+b") as opened, pytest.raises(OSError, match=says(errno.EINVAL)):
        _native.punch_hole(opened.fileno(), offset, length)
    assert file.read_bytes() == b"x" * BLOCK


def test_a_hole_needs_a_file_that_is_open_for_writing(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * BLOCK)
    with file.open("rb") as opened, pytest.raises(OSError, match=says(errno.EBADF)):
        _native.punch_hole(opened.fileno(), 0, BLOCK)


def test_an_unknown_namespace_flag_is_refused() -> None:
    with pytest.raises(OSError, match=says(errno.EINVAL)):
        _native.unshare(0x1)


def test_setns_says_that_a_file_is_no_namespace(tmp_path: Path) -> None:
    with (tmp_path / "plain").open("w") as plain, pytest.raises(OSError, match=says(errno.EINVAL)):
        _native.setns(plain.fileno())


def test_a_failed_mount_names_its_target(tmp_path: Path) -> None:
    target = tmp_path / "absent"
    with pytest.raises(OSError, match=says(errno.ENOENT, errno.EPERM)) as refused:
        _native.mount("tmpfs", str(target), "tmpfs")
    assert refused.value.filename == str(target)


def test_unmounting_what_is_no_mount_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=says(errno.EINVAL, errno.EPERM)) as refused:
        _native.umount(str(tmp_path))
    assert refused.value.filename == str(tmp_path)


@pytest.mark.parametrize("call", ["punch_hole('1', 0, 1)", "setns(None)", "unshare(1.5)", "mount('a', None)"])
def test_a_wrong_type_is_a_type_error(call: str) -> None:
    with pytest.raises(TypeError):
        eval(f"module.{call}", {"module": _native})


def may_unshare() -> bool:
    return (
        run_python(
            "from milkweed.runtime import _native as n; n.unshare(n.CLONE_NEWNS | n.CLONE_NEWUTS)"
        ).returncode
        == 0
    )


def test_a_mount_in_a_namespace_of_its_own_is_seen_there_only(tmp_path: Path) -> None:
    """Where the kernel lets us: unshare, make the tree private, mount, enter again from outside, unmount."""
    code = f"""
import os, socket
from milkweed.runtime import _native as n
outside = os.open("/proc/self/ns/mnt", os.O_RDONLY)
n.unshare(n.CLONE_NEWNS | n.CLONE_NEWUTS)
inside = os.open("/proc/self/ns/mnt", os.O_RDONLY)
n.mount(None, "/", None, n.MS_REC | n.MS_PRIVATE)
n.mount("tmpfs", {str(tmp_path)!r}, "tmpfs", n.MS_NODEV | n.MS_NOSUID, "size=64k")
open({str(tmp_path / "seen")!r}, "w").close()
n.setns(outside, n.CLONE_NEWNS)
print(os.listdir({str(tmp_path)!r}))
n.setns(inside)
print(os.listdir({str(tmp_path)!r}))
n.umount({str(tmp_path)!r}, n.MNT_DETACH)
print(os.listdir({str(tmp_path)!r}))
"""
    if not may_unshare():
        refused = run_python("from milkweed.runtime import _native as n; n.unshare(n.CLONE_NEWNS)")
        assert "PermissionError" in refused.stderr
        return
    result = run_python(code)
    assert (result.stdout, result.stderr) == ("[]\n['seen']\n[]\n", "")


def test_namespaces_belong_to_the_calling_thread() -> None:
    if not may_unshare():
        pytest.skip("this machine does not allow new UTS namespaces")
    names: list[str] = []

    def leave() -> None:
        _native.unshare(_native.CLONE_NEWUTS)
        names.append(os.readlink("/proc/thread-self/ns/uts"))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join(timeout=30)
    (name,) = names
    assert name != os.readlink("/proc/thread-self/ns/uts")


def test_a_process_takes_another_image() -> None:
    """For the kernel, and for programs that it starts."""
    code = """
import os, subprocess
from milkweed.runtime import _native
_native.take_image(b"one\\0two words\\0", b"A=1\\0B=x=y\\0C=\\0")
print(open("/proc/self/cmdline", "rb").read(), open("/proc/self/environ", "rb").read())
print(subprocess.run(["/usr/bin/env"], capture_output=True).stdout)
_native.take_image(b"", b"")
print(open("/proc/self/environ", "rb").read())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    # Without an `env`, a child gets what the C library's environ points to.
    assert done.stdout.splitlines() == [
        r"b'one\x00two words\x00' b'A=1\x00B=x=y\x00C=\x00'",
        r"b'A=1\nB=x=y\nC=\n'",
        "b''",
    ], done.stderr


@pytest.mark.parametrize("size", [0, 1, 4096, 2 * 1024 * 1024, 7 * 1024 * 1024 + 3])
def test_a_copy_to_bytes_is_equal_and_its_own(size: int) -> None:
    source = bytearray(os.urandom(size))
    copy = _native.copied_to_bytes(memoryview(source))
    assert type(copy) is bytes
    assert copy == source
    if size:
        source[-1] ^= 1
        assert copy != source


def test_memory_with_gaps_is_not_copied_to_bytes() -> None:
    with pytest.raises(BufferError):
        _native.copied_to_bytes(memoryview(bytearray(8))[::2])
