"""Every error that Milkweed raises on purpose.

    MilkweedError
    ├── NotFound             mesh_not_found, run_not_found, rank_not_found, host_not_found, file_not_found,
    │                        output_not_found, command_not_found, tool_not_found, endpoint_not_found,
    │                        actor_not_found, not_attached, job_not_found, replica_not_found, mount_not_found,
    │                        resource_not_found, transcript_unreadable, workspace_missing, metrics_not_found,
    │                        transcript_not_found, prompt_not_found, log_unreadable
    ├── InvalidArgument      invalid_argument, invalid_path, unsupported, unpicklable, unreadable_arguments,
    │                        out_of_range, wrong_key, not_loopback, resource_too_large, transcript_unreadable,
    │                        too_many_subscriptions, log_unreadable
    ├── Conflict             name_in_use, mesh_not_ready, mesh_released, run_ended, file_exists, file_changed,
    │                        owner_gone, not_the_owner, mesh_stopped, not_in_an_actor, would_deadlock,
    │                        program_ending, job_ended, slots_in_use, buffer_dropped, access_refused,
    │                        too_many_buffers, workspace_in_use
    ├── Unavailable          allocation_failed, scheduler_unusable, isolation_unavailable, host_lost,
    │                        host_ending, keeper_lost, connection_lost, deadline_exceeded,
    │                        directory_unusable, disk_full, index_unreadable, index_unusable, index_busy,
    │                        index_elsewhere, proc_lost, cancelled, uncancellable, mailbox_full, outcome_lost,
    │                        buffer_owner_lost, transport_unusable, transfer_failed, mount_unusable,
    │                        watch_unusable, workspace_behind, address_in_use, address_unusable,
    │                        recording_failed, server_lost, lease_fixed
    ├── ProtocolError        protocol_error, version_mismatch, unreadable_result
    ├── MeshError            ranks_failed
    ├── ActorError           actor_error: an exception that an endpoint raised, or its actor's __init__
    └── RemoteFailure        internal_error: an exception nobody meant, here or on the other side of a call

An error says what failed and why (`cause`) and the call or command that helps (`next_step`); `code` is
stable, so that programs can match on it. `str(error)` is `code: cause. next_step`.

    >>> error = NotFound("mesh_not_found", "no mesh 'train'; meshes: mesh-trainers-k3f", "Call list_meshes.")
    >>> str(error)
    "mesh_not_found: no mesh 'train'; meshes: mesh-trainers-k3f. Call list_meshes."
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping

__all__ = [
    "ActorError",
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


class ActorError(MilkweedError):
    """An exception that an endpoint raised, or its actor's `__init__`.

    `exception` is the exception itself where this process can make it, and also `__cause__`;
    `exception_type` is its qualified name, `remote_traceback` the text of its traceback there, `place` the
    innermost one in the user's code (`train.py:41 in step`; empty where there is none).
    """

    def __init__(
        self,
        code: str,
        cause: str,
        next_step: str,
        exception_type: str = "",
        remote_traceback: str = "",
        exception: BaseException | None = None,
        place: str = "",
    ) -> None:
        super().__init__(code, cause, next_step)
        self.place = place
        self.exception_type = exception_type
        self.remote_traceback = remote_traceback
        self.exception = exception
        self.__cause__ = exception
        if remote_traceback:
            self.add_note(f"Traceback where it was raised:\n{remote_traceback.rstrip()}")

    @property
    def raised(self) -> str:
        """What was raised, without who and where: the same for ranks that failed alike."""
        return self.cause.partition(" raised ")[2] or self.cause

    def __reduce__(self) -> tuple[type[ActorError], tuple[object, ...]]:
        parts = (self.code, self.cause, self.next_step, self.exception_type, self.remote_traceback)
        return ActorError, (*parts, self.exception if _can_cross(self.exception) else None, self.place)


def _can_cross(exception: BaseException | None) -> bool:
    try:
        pickle.loads(pickle.dumps(exception))
    except Exception:
        return False
    return True


class RemoteFailure(MilkweedError):
    """An unexpected exception on the other side of a call; `remote_traceback` is for logs, not for agents."""

    def __init__(self, code: str, cause: str, next_step: str, remote_traceback: str = "") -> None:
        super().__init__(code, cause, next_step)
        self.remote_traceback = remote_traceback

    def __reduce__(self) -> tuple[type[RemoteFailure], tuple[str, str, str, str]]:
        return RemoteFailure, (self.code, self.cause, self.next_step, self.remote_traceback)
