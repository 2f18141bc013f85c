"""Every error that Milkweed raises on purpose.

    MilkweedError
    ├── NotFound             mesh_not_found, run_not_found, rank_not_found, host_not_found, file_not_found,
    │                        output_not_found, command_not_found, tool_not_found, endpoint_not_found
    ├── InvalidArgument      invalid_argument, invalid_path, unsupported
    ├── Conflict             name_in_use, mesh_not_ready, mesh_released, run_ended, file_exists, file_changed,
    │                        owner_gone
    ├── Unavailable          allocation_failed, scheduler_unusable, isolation_unavailable, host_lost,
    │                        host_ending, keeper_lost, connection_lost, deadline_exceeded,
    │                        directory_unusable, disk_full, index_unreadable, index_unusable, index_elsewhere
    ├── ProtocolError        protocol_error, version_mismatch
    ├── MeshError            ranks_failed
    └── RemoteFailure        internal_error: an exception nobody meant, here or on the other side of a call

An error says what failed and why (`cause`) and the call or command that helps (`next_step`); `code` is
stable, so that programs can match on it. `str(error)` is `code: cause. next_step`.

    >>> error = NotFound("mesh_not_found", "no mesh 'train'; meshes: mesh-trainers-k3f", "Call list_meshes.")
    >>> str(error)
    "mesh_not_found: no mesh 'train'; meshes: mesh-trainers-k3f. Call list_meshes."
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "Conflict",
    "InvalidArgument",
    "MeshError",
    "MilkweedError",
    "NotFound",
    "ProtocolError",
    "RemoteFailure",
    "Unavailable",
]


class MilkweedError(Exception):
    """The root: a stable code, the cause, and the next step."""

    def __init__(self, code: str, cause: str, next_step: str) -> None:
        super().__init__(code, cause, next_step)
        self.code = code
        self.cause = cause.rstrip(".")
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.code}: {self.cause}. {self.next_step}"


class NotFound(MilkweedError):
    """The thing named does not exist; the cause lists what does."""


class InvalidArgument(MilkweedError):
    """An argument is wrong; nothing was changed."""


class Conflict(MilkweedError):
    """The thing exists, but its state forbids the call."""


class Unavailable(MilkweedError):
    """Something outside our control is missing, gone or too slow."""


class ProtocolError(MilkweedError):
    """The peer does not speak our protocol, or not this version; the connection is closed."""


class MeshError(MilkweedError):
    """Some ranks of a call failed: `errors` has each one's, by rank; its `__cause__` is the first of them."""

    def __init__(self, code: str, cause: str, next_step: str, errors: Mapping[int, Exception]) -> None:
        super().__init__(code, cause, next_step)
        self.errors = errors
        self.__cause__ = next(iter(errors.values()), None)

    def __reduce__(self) -> tuple[type[MeshError], tuple[str, str, str, Mapping[int, Exception]]]:
        return MeshError, (self.code, self.cause, self.next_step, self.errors)


class RemoteFailure(MilkweedError):
    """An unexpected exception on the other side of a call; `remote_traceback` is for logs, not for agents."""

    def __init__(self, code: str, cause: str, next_step: str, remote_traceback: str = "") -> None:
        super().__init__(code, cause, next_step)
        self.remote_traceback = remote_traceback

    def __reduce__(self) -> tuple[type[RemoteFailure], tuple[str, str, str, str]]:
        return RemoteFailure, (self.code, self.cause, self.next_step, self.remote_traceback)
