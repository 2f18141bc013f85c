"""What procs of a program of its own find imported, where nothing is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
{imports}
from milkweed.runtime import Actor, endpoint, this_host

class Looker(Actor):
    @endpoint
    def sees(self) -> bool:
        return "torch" in sys.modules

procs = this_host().spawn_procs(per_host={{"gpus": 2}}).get()
print(*procs.spawn("looker", Looker).get().sees.call().get().values(), *procs.starts.values())
procs.stop().get()
"""


@pytest.mark.parametrize(
    ("imports", "seen"), [("", "False False warm warm"), ("import torch", "True True warm warm")]
)
def test_procs_have_torch_at_once_if_their_owner_has_it(imports: str, seen: str, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "MILKWEED_WARM_MODULES"}
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(imports=imports))
    done = subprocess.run(
        [sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=150, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"{seen}\n", "", 0)
