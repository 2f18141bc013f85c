"""The build backend: scikit-build-core, with an editable install that is one line in a ``.pth`` file.

scikit-build-core's own editable install runs an import hook at every interpreter start and lists the modules
that it knows. Here ``src`` is put on ``sys.path`` instead, where ``milkweed`` holds links to the source
folders: a new file is importable at once, tools that read the file system (mypy, import-linter) see the
package that Python sees, and a process pays for one more path entry and nothing else.
"""

import base64
import hashlib
import os
import zipfile
from pathlib import Path

from scikit_build_core import build as _scikit
from scikit_build_core.build import (
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
NATIVE = "milkweed/runtime/"


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, list[str] | str] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build an editable wheel of metadata and one ``.pth`` line; the native module goes into ``runtime/``."""
    name = _scikit.build_editable(wheel_directory, config_settings, metadata_directory)
    wheel = Path(wheel_directory, name)
    with zipfile.ZipFile(wheel) as built:
        files = {item: built.read(item) for item in built.namelist()}
    kept = {path: data for path, data in files.items() if ".dist-info/" in path}
    for path, data in files.items():
        if path.startswith(NATIVE):
            _replace(ROOT / "runtime" / path.removeprefix(NATIVE), data)
    kept["milkweed-editable.pth"] = f"{ROOT / 'src'}\n".encode()
    _write_wheel(wheel, kept)
    return name


def _replace(path: Path, data: bytes) -> None:
    # A new inode: a process that has the old module mapped keeps its own.
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(data)
    fresh.chmod(0o755)
    fresh.replace(path)


def _write_wheel(wheel: Path, files: dict[str, bytes]) -> None:
    record = next(path for path in files if path.endswith(".dist-info/RECORD"))
    del files[record]
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in files.items():
            out.writestr(path, data)
        out.writestr(record, "\n".join([*rows, f"{record},,", ""]))


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
