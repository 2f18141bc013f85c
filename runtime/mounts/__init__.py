"""Mounts: a client's directory on every host, live; `docs/mounts.md` has the picture.

    async with open_workspace(Path("project")) as workspace:      # in the keeper
        feed = Feed(workspace, followers := Followers())          # served as an actor
        revision = await workspace.barrier()
        behind = await followers.acknowledged(revision, names, within_s=5.0)

    async with open_mount(HostConfig(mountpoint=..., source=..., follower="0", cache=...)) as mount: ...

pyfuse3 is imported in the mount process alone. Names are loaded when they are first used: the mount process
is started again after each kill, and needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .copying import Copy
    from .doors import connect_feed, serve_feed
    from .excludes import Excluded
    from .feed import FEED, Feed, Followers, ReadFeed
    from .host_config import HostConfig
    from .landing import Landings
    from .manifest import FileRef, Manifest
    from .mount_process import MountProcess, MountState, open_mount
    from .mountpoints import Holder
    from .probing import probe
    from .remote import RemoteReads, RemoteSource, open_remote
    from .source import Gone, Reads, Source, Unreadable
    from .verdict import Facts, Mend, Mode, Verdict, Wanted, decide, in_the_way
    from .workspace import Workspace, open_workspace

__all__ = [
    "FEED",
    "Copy",
    "Excluded",
    "Facts",
    "Feed",
    "FileRef",
    "Followers",
    "Gone",
    "Holder",
    "HostConfig",
    "Landings",
    "Manifest",
    "Mend",
    "Mode",
    "MountProcess",
    "MountState",
    "ReadFeed",
    "Reads",
    "RemoteReads",
    "RemoteSource",
    "Source",
    "Unreadable",
    "Verdict",
    "Wanted",
    "Workspace",
    "connect_feed",
    "decide",
    "in_the_way",
    "open_mount",
    "open_remote",
    "open_workspace",
    "probe",
    "serve_feed",
]

_HOMES = {
    ".copying": ("Copy",),
    ".doors": (
        "connect_feed",
        "serve_feed",
    ),
    ".excludes": ("Excluded",),
    ".feed": (
        "FEED",
        "Feed",
        "Followers",
        "ReadFeed",
    ),
    ".host_config": ("HostConfig",),
    ".landing": ("Landings",),
    ".manifest": (
        "FileRef",
        "Manifest",
    ),
    ".mount_process": (
        "MountProcess",
        "MountState",
        "open_mount",
    ),
    ".mountpoints": ("Holder",),
    ".probing": ("probe",),
    ".remote": (
        "RemoteReads",
        "RemoteSource",
        "open_remote",
    ),
    ".source": (
        "Gone",
        "Reads",
        "Source",
        "Unreadable",
    ),
    ".verdict": (
        "Facts",
        "Mend",
        "Mode",
        "Verdict",
        "Wanted",
        "decide",
        "in_the_way",
    ),
    ".workspace": (
        "Workspace",
        "open_workspace",
    ),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
