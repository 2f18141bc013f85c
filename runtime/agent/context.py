"""What the services of one host share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..mesh_secret import ADDRESS_VARIABLE, SECRET_VARIABLE
from .children import Children
from .spool import Spool

__all__ = ["HostContext"]


@dataclass(frozen=True, slots=True)
class HostContext:
    """One host, as its agent sees it. `directory` is its own; relative paths begin at `workspace`.

    `is_signalled_as_one`: its scheduler signals all of its processes where it ends it.
    """

    mesh: str
    host: int
    name: str
    address: str
    directory: Path
    workspace: str
    children: Children
    spool: Spool
    secret_file: str = ""
    is_signalled_as_one: bool = False

    @property
    def reached(self) -> dict[str, str]:
        """Variables that tell its processes where other hosts reach them, and what proves them."""
        return {ADDRESS_VARIABLE: self.address} | (
            {SECRET_VARIABLE: self.secret_file} if self.secret_file else {}
        )

    @property
    def instance(self) -> str:
        """Names this host for ever among all of this machine; what it starts carries it as a mark."""
        return f"{self.mesh}.{self.host}"

    @property
    def temporary(self) -> Path:
        """TMPDIR of everything it starts."""
        return self.directory / "tmp"

    @property
    def procs_directory(self) -> Path:
        """Where outputs of procs are."""
        return self.directory / "procs"

    def run_directory(self, run: str) -> Path:
        return self.directory / "runs" / run

    def resolve(self, path: str) -> str:
        """An absolute path; relative ones begin at the workspace."""
        return os.path.normpath(os.path.join(self.workspace, path))
