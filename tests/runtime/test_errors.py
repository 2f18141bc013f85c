"""The tree at the top of errors.py tells every code that is raised, under its class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import milkweed
from milkweed.runtime import errors

SOURCE = Path(milkweed.__file__).parent
CLASSES = set(errors.__all__)
# Those whose code is computed: where, and what it can be.
COMPUTED = {
    ("NotFound", "runtime/extent.py"): {"rank_not_found", "host_not_found"},
    ("Unavailable", "runtime/meshes/calling.py"): {"deadline_exceeded", "cancelled"},
    ("Unavailable", "runtime/client/meshes.py"): {"disk_full", "allocation_failed"},
    ("Unavailable", "runtime/keeper/allocation.py"): {"disk_full", "directory_unusable"},
    ("Unavailable", "runtime/fetching.py"): {"disk_full", "directory_unusable"},
    ("Unavailable", "runtime/index.py"): {"disk_full", "directory_unusable"},
    ("Unavailable", "server/http.py"): {"address_in_use", "address_unusable"},
}


def raised() -> Iterator[tuple[str, str]]:
    for folder in ("runtime", "tools", "server"):
        for path in sorted((SOURCE / folder).resolve().rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
                    name, code = node.func.id, node.args[0]
                    if isinstance(code, ast.Constant):
                        yield name, str(code.value)
                    else:
                        where = f"{folder}/{path.relative_to((SOURCE / folder).resolve())}"
                        yield from ((name, one) for one in COMPUTED[name, where])


def listed() -> set[tuple[str, str]]:
    tree = (errors.__doc__ or "").split("MilkweedError\n")[1].split("\n\n")[0]
    found, name = set(), ""
    for line in tree.splitlines():
        words = re.findall(r"[A-Za-z_]+", line.split(": an exception")[0])
        if words and words[0] in CLASSES:
            name, words = words[0], words[1:]
        found |= {(name, word) for word in words}
    return found


def test_the_tree_lists_exactly_the_codes_that_are_raised() -> None:
    assert set(raised()) == listed()


def test_an_error_is_read_as_code_cause_and_next_step() -> None:
    error = errors.NotFound("mesh_not_found", "no mesh 'x'.", "Call list_meshes.")
    assert str(error) == "mesh_not_found: no mesh 'x'. Call list_meshes."
