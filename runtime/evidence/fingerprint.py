"""What a rank runs in: its interpreter, packages, torch and variables, read from files, nothing run."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .records import Fingerprint

__all__ = ["chosen_variables", "read_fingerprint"]

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_NOISE = re.compile(r"MILKWEED_|_$|PWD$|OLDPWD$|SHLVL$|HOSTNAME$|LS_COLORS$|TMPDIR$|SSH_|XDG_|DBUS_|TERM")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")
_LONGEST = 200
_MOST_SCRIPT = 4 * 1024 * 1024
_VERSION_LINE = re.compile(r"^(__version__|cuda|hip)\b[^=\n]*= *['\"]([^'\"]+)['\"]", re.MULTILINE)


def read_fingerprint(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Fingerprint:
    """Of a process that is or was started so; what cannot be found is empty."""
    program = _program(argv, env, cwd)
    script = _script(argv, cwd)
    if program is None:
        return Fingerprint(variables=chosen_variables(env), script=script, script_hash=_digest(script))
    places = list(_site_packages(program))
    packages = dict(_distributions(places))
    return Fingerprint(
        interpreter=str(program),
        python=_python_version(program, places),
        packages=packages,
        torch=_torch(places),
        driver=_driver(),
        variables=chosen_variables(env),
        script=script,
        script_hash=_digest(script),
    )


def chosen_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Without secrets, by their names, and without what differs on every host and means nothing."""
    return {
        name: value[:_LONGEST]
        for name, value in sorted(env.items())
        if not _SECRET.search(name) and not _NOISE.match(name)
    }


def _program(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Path | None:
    """The interpreter: what is started, or what its first line names; of an environment its own link."""
    if not argv:
        return None
    found = shutil.which(os.path.join(cwd, argv[0]) if "/" in argv[0] else argv[0], path=env.get("PATH"))
    if found is None:
        return None
    if _PYTHON.search(found):
        return Path(found)
    try:
        with open(found, "rb") as file:
            first = file.readline(512).decode("utf-8", "replace")
    except OSError:
        return None
    words = first[2:].split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        named = shutil.which(words[1], path=env.get("PATH")) if len(words) > 1 else None
        return Path(named) if named and _PYTHON.search(named) else None
    return Path(words[0]) if words and _PYTHON.search(words[0]) else None


def _site_packages(program: Path) -> Iterator[Path]:
    prefix = program.parent.parent
    config = _config(prefix)
    prefixes = [prefix]
    base = Path(os.path.realpath(program)).parent.parent
    if not config or config.get("include-system-site-packages") == "true":
        prefixes.append(base)
    seen = set()
    for one in prefixes:
        for pattern in (
            "lib/python3*/site-packages",
            "lib/python3*/dist-packages",
            "lib/python3/dist-packages",
        ):
            for place in sorted(one.glob(pattern)):
                if place not in seen:
                    seen.add(place)
                    yield place


def _config(prefix: Path) -> dict[str, str]:
    """The pyvenv.cfg of an environment; empty where it is none."""
    try:
        lines = (prefix / "pyvenv.cfg").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name.strip().lower(): value.strip().lower() for name, _, value in pairs}


def _distributions(places: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for place in reversed(places):  # the first place wins
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                stem = name.rpartition(".")[0]
                package, _, version = stem.partition("-")
                if version:
                    yield package.lower().replace("_", "-"), version.partition("-py")[0]


def _python_version(program: Path, places: Sequence[Path]) -> str:
    config = _config(program.parent.parent)
    if found := config.get("version") or config.get("version_info"):
        return ".".join(found.split(".")[:3])
    named = [part for place in places[:1] for part in place.parts if part.startswith("python3.")]
    return named[0].removeprefix("python") if named else ""


def _torch(places: Sequence[Path]) -> str:
    for place in places:
        try:
            found = dict(_VERSION_LINE.findall((place / "torch" / "version.py").read_text(errors="replace")))
        except OSError:
            continue
        for kind in ("cuda", "hip"):
            if kind in found:
                return f"{kind} {found[kind]}"
        return "cpu"
    return ""


def _driver() -> str:
    for path, name in (("/proc/driver/nvidia/version", "nvidia"), ("/sys/module/amdgpu/version", "amdgpu")):
        try:
            text = Path(path).read_text(errors="replace")
        except OSError:
            continue
        if number := re.search(r"\d+(?:\.\d+)+", text):
            return f"{name} {number[0]}"
    return ""


def _script(argv: Sequence[str], cwd: str) -> str:
    for word in argv[1:]:
        if word.endswith(".py") and os.path.isfile(os.path.join(cwd, word)):
            return os.path.join(cwd, word)
    return ""


def _digest(script: str) -> str:
    if not script:
        return ""
    try:
        with open(script, "rb") as file:
            return hashlib.sha256(file.read(_MOST_SCRIPT)).hexdigest()[:12]
    except OSError:
        return ""
