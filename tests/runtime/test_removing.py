"""Trees that programs made are walked and removed, however deep and whatever they forbid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from milkweed.runtime.removing import files_below, remove_tree

from .nobody import as_nobody


def make_deep(top: Path, depth: int) -> None:
    """Deeper than Python recurses, and than a path may be long."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


def test_no_tree_is_too_deep_to_be_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "beside").mkdir(parents=True)
    (tree / "beside" / "file").write_text("x")
    make_deep(tree, 3 * sys.getrecursionlimit())
    try:
        remove_tree(tree)
        assert not tree.exists()
    finally:
        subprocess.run(["rm", "-rf", tree], check=True)


def test_what_symlinks_lead_to_stays(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    remove_tree(tmp_path / "tree")
    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "nothing")
    assert sorted(os.listdir(tmp_path)) == ["link", "other"]
    assert os.listdir(tmp_path / "other") == ["file"]


def test_folders_that_nobody_may_enter_are_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    as_nobody(
        tree,
        "os.makedirs('a/b/c'); os.chmod('a/b', 0o555); os.chmod('a', 0)\n"
        "os.mkdir('d'); os.chmod('d', 0o300)\n"
        "remove_tree('a'); remove_tree('d'); assert os.listdir('.') == []",
        remove_tree=remove_tree,
    )


def test_all_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("x", "a/y", "a/b/z"):
        (tmp_path / name).write_text(name)
    found = [
        os.path.relpath(f"{one}/{name}", tmp_path)
        for one, names in files_below(str(tmp_path))
        for name in names
    ]
    assert sorted(found) == ["a/b/z", "a/y", "x"]
