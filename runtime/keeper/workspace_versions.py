"""What a keeper leaves of a workspace's versions for the next one (`mounts.versions.Ledger`)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["keep_versions", "kept_versions"]

logger = logging.getLogger(__name__)

Versions = Mapping[bytes, tuple[int, int]]


def keep_versions(file: Path, versions: Versions) -> None:
    """A full disk is no reason to stop."""
    text = json.dumps({path.decode("latin-1"): pair for path, pair in versions.items()})
    new = file.with_suffix(".new")
    try:
        new.write_text(text)
        os.replace(new, file)
    except OSError as error:
        logger.warning("what the workspace's versions are is not kept: %s", error)


def kept_versions(file: Path) -> Versions:
    """Nothing, where there is none, or none that can be read."""
    try:
        return {
            path.encode("latin-1"): (pair[0], pair[1]) for path, pair in json.loads(file.read_text()).items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, IndexError, AttributeError) as error:
        logger.warning("what the workspace's versions were is not known: %s", error)
        return {}
