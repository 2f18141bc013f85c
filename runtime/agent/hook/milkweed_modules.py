# Loaded by the hook into a Python that an exception has ended: which packages it had imported, of which
# version, from where; and the exception, which its output need not show.
import json
import os
import sys

_MOST = 400
_INNERMOST = 50
_MOST_TEXT = 8192


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
    with _create(path) as out:
        json.dump(found, out)


def write_raised(path: str) -> None:
    """As Python prints it, the end of it where it is long; nothing of a program that was interrupted.

    Python ends that one by SIGINT unless text is evaluated meanwhile, as imports of `traceback` do.
    """
    if sys.last_type is None or issubclass(sys.last_type, KeyboardInterrupt):
        return
    import traceback

    lines = traceback.format_exception(sys.last_type, sys.last_value, sys.last_traceback, limit=-_INNERMOST)
    with _create(path) as out:
        out.write("".join(lines)[-_MOST_TEXT:])


def _create(path: str):  # type: ignore[no-untyped-def]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    return open(fd, "w", encoding="utf-8", errors="backslashreplace")
