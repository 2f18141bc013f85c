"""Libraries that a test installs: a module, and the entry point that leads to it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["install"]


def install(folder: Path, group: str, name: str, source: str) -> None:
    """Installs a library into `folder`, which is to be on the path: its entry point `name` is `content`."""
    module = f"plugin_{name}"
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:content\n")
