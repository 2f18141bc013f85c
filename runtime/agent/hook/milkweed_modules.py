# Loaded by the hook into a Python that an exception has ended: which packages it had imported, of which
# version, from where.
import json
import os
import sys

_MOST = 400


def write(path: str) -> None:
    """As JSON: name to version (empty where it tells none) and file."""
    found = {}  # type: ignore[var-annotated]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name.startswith("_") or not isinstance(file, str) or len(found) >= _MOST:
            continue
        if "/lib/python3" in file and "-packages/" not in file:
            continue
        version = getattr(module, "__version__", "")
        found[name] = [version if isinstance(version, str) else str(version)[:40], file]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as out:
        json.dump(found, out)
