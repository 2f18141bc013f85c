"""Logs of Claude Code, made by hand in the form that is publicly known."""

import json
from itertools import count
from typing import Any

BEFORE = "import torch\nLR = 10.0\nprint(LR)\n"


class ClaudeLog:
    """Lines as the program writes them; each call gets its answer at once."""

    def __init__(self, directory: str = "/home/u/proj") -> None:
        self.directory = directory
        self._lines: list[str] = []
        self._numbers = count(1)

    def asked(self, text: str) -> None:
        self.line("user", {"role": "user", "content": text})

    def says(self, *texts: str, thinks: str = "hm") -> None:
        blocks = [{"type": "thinking", "thinking": thinks}, *({"type": "text", "text": one} for one in texts)]
        self.line("assistant", {"role": "assistant", "content": blocks})

    def uses(
        self, name: str, arguments: dict[str, Any], answer: Any, *, is_error: bool = False, **known: Any
    ) -> None:
        number = f"toolu_{next(self._numbers)}"
        use = {"type": "tool_use", "id": number, "name": name, "input": arguments}
        self.line("assistant", {"role": "assistant", "content": [use]})
        text = json.dumps(answer) if isinstance(answer, dict) else answer
        result = {"type": "tool_result", "tool_use_id": number, "content": [{"type": "text", "text": text}]}
        if is_error:
            result["is_error"] = True
        self.line("user", {"role": "user", "content": [result]}, **({"toolUseResult": known} if known else {}))

    def line(self, kind: str, message: dict[str, Any], **more: Any) -> None:
        number = next(self._numbers)
        fields = {
            "parentUuid": None,
            "isSidechain": False,
            "type": kind,
            "message": message,
            "uuid": f"uuid-{number}",
            "timestamp": f"2026-02-01T14:{number // 60:02}:{number % 60:02}.500Z",
            "cwd": self.directory,
            "sessionId": "s",
            "version": "2.1.86",
            **more,
        }
        self._lines.append(json.dumps(fields))

    def other(self, **fields: Any) -> None:
        self._lines.append(json.dumps(fields))

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


def a_session() -> ClaudeLog:
    """A mesh, an installation, an edit, a run, and much that is not Milkweed's."""
    log = ClaudeLog()
    log.other(type="file-history-snapshot", messageId="m", snapshot={})
    log.asked("Train it on two hosts.\nThe token is hf_abcdefghijklmnopqrstuvwx.")
    log.says("First a mesh.")
    log.uses(
        "mcp__milkweed__allocate_mesh",
        {"name": "t", "hosts": 2, "procs_per_host": 1, "workspace": "/home/u/proj"},
        {"mesh": "mesh-t-abc", "state": "ready", "hosts": 2, "procs_per_host": 1, "scheduler": "local"},
    )
    log.uses("Bash", {"command": "ls -la"}, "train.py")
    log.uses("Bash", {"command": ".venv/bin/pip install tqdm"}, "ok", stdout="Installed tqdm", stderr="")
    log.uses(
        "Edit",
        {"file_path": "/home/u/proj/train.py", "old_string": "10.0", "new_string": "0.1"},
        "updated",
        originalFile=BEFORE,
        structuredPatch=[],
    )
    log.uses(
        "Write",
        {"file_path": "/home/u/proj/new/data.py", "content": "N = 3\n"},
        "created",
        type="create",
        originalFile=None,
    )
    log.uses("TodoWrite", {"todos": []}, "ok")
    log.uses(
        "mcp__milkweed__run_on_mesh",
        {"mesh": "mesh-t-abc", "command": "python train.py"},
        {"run": "run-7qd", "mesh": "mesh-t-abc", "state": "succeeded"},
    )
    log.uses("mcp__milkweed__read_run_output", {"run": "run-7qd"}, "loss 0.5 in /home/u/proj/train.py")
    log.uses(
        "mcp__milkweed__cancel_run", {"run": "run-x"}, "run_not_found: no run 'run-x'.", is_error=True
    )
    log.says("It trains.")
    return log
