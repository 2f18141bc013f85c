"""Gather mounts: a directory of every host, live at the client; `docs/mounts.md` has the picture.

    config = GatherConfig(mountpoint="logs", remote="/var/log", hosts=((0, SOCKET), (1, SOCKET)))
    mount = MountProcess(config, children)                        # in the keeper
    actors = {"LiveFiles": LiveFiles(context)}                    # in each host's agent

`filesystem` and `process` are imported in the mount process alone.
"""

from .config import GatherConfig

__all__ = ["GatherConfig"]
