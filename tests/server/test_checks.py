"""The mends that the doctor names, on machines that are made up."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from milkweed.runtime.mounts import Facts
from milkweed.runtime.services.stacks import ptrace_mend
from milkweed.server.cli import checks
from milkweed.server.cli.checks import check_logind, check_mounts
from milkweed.server.cli.slurm_checks import check_slurm

CONTAINER = "in a container: start it with --cap-add SYS_PTRACE"
USER = 12_345


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of its file system as the checks see it, for a user without rights."""
    monkeypatch.setattr(
        checks, "Path", lambda *parts: tmp_path.joinpath(*(part.strip("/") for part in parts))
    )
    monkeypatch.setattr(os, "getuid", lambda: USER)
    monkeypatch.setattr(os, "geteuid", lambda: USER)
    monkeypatch.setenv("USER", "ada")
    return tmp_path


def put(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("scope", "mend"),
    [
        ("0\n", CONTAINER),
        ("1\n", f"sudo sysctl kernel.yama.ptrace_scope=0, or {CONTAINER}"),
        ("2\n", f"sudo sysctl kernel.yama.ptrace_scope=0, or {CONTAINER}"),
        ("3\n", f"boot with kernel.yama.ptrace_scope=0 (3 cannot be changed while running), or {CONTAINER}"),
        ("what?\n", CONTAINER),
        (None, CONTAINER),
    ],
)
def test_where_ptrace_is_denied(tmp_path: Path, scope: str | None, mend: str) -> None:
    (tmp_path / "7").mkdir()
    if scope is not None:
        put(tmp_path / "sys/kernel/yama/ptrace_scope", scope)
    assert ptrace_mend(7, proc=tmp_path) == mend
    assert ptrace_mend(8, proc=tmp_path) == mend


def test_a_process_of_another_user_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = tmp_path / "7"
    process.mkdir()
    if os.getuid() == 0:
        os.chown(process, 65534, 65534)
    owner = process.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: USER)
    assert ptrace_mend(7, proc=tmp_path) == f"run Milkweed as the same user (uid {owner}), or {CONTAINER}"


def test_what_keeps_mounts_from_working_is_no_fault_but_has_a_mend() -> None:
    able = Facts(
        has_device=True,
        device_error="",
        helper="/usr/bin/fusermount3",
        may_mount=False,
        binding_error="",
        in_container=False,
    )
    assert check_mounts(able).state == "ok"
    check = check_mounts(replace(able, helper=""))
    assert (check.state, check.mend) == ("absent", "Run as root: apt-get install fuse3")
    assert "hosts share or copy directories" in check.detail


def test_where_no_login_manager_runs_nothing_ends_with_a_login(machine: Path) -> None:
    put(machine / "etc/systemd/logind.conf", "KillUserProcesses=yes\n")
    assert check_logind().state == "absent"


@pytest.mark.parametrize(
    ("settings", "kills"),
    [
        ({}, False),
        ({"logind.conf": "[Login]\n#KillUserProcesses=yes\n"}, False),
        ({"logind.conf": "[Login]\nKillUserProcesses=yes\n"}, True),
        ({"logind.conf": "[Login]\nKillUserProcesses = yes\n"}, True),
        ({"logind.conf": "[Login]\nKillUserProcesses=no\nKillUserProcesses=yes\n"}, True),
        ({"logind.conf": "KillUserProcesses=no\n", "logind.conf.d/9.conf": "KillUserProcesses=1\n"}, True),
        ({"logind.conf": "KillUserProcesses=yes\n", "logind.conf.d/9.conf": "KillUserProcesses=no\n"}, False),
    ],
)
def test_where_logind_ends_what_a_login_started(machine: Path, settings: dict[str, str], kills: bool) -> None:
    (machine / "run/systemd/seats").mkdir(parents=True)
    for name, text in settings.items():
        put(machine / "etc/systemd" / name, text)
    check = check_logind()
    expected = ("warning", "loginctl enable-linger ada") if kills else ("ok", "")
    assert (check.state, check.mend) == expected


@pytest.mark.parametrize("spared", ["lingers", "is root"])
def test_whom_logind_spares(machine: Path, monkeypatch: pytest.MonkeyPatch, spared: str) -> None:
    (machine / "run/systemd/seats").mkdir(parents=True)
    put(machine / "etc/systemd/logind.conf", "KillUserProcesses=yes\n")
    if spared == "lingers":
        put(machine / "var/lib/systemd/linger/ada")
    else:
        monkeypatch.setattr(os, "getuid", lambda: 0)
    assert check_logind().state == "ok"


def test_a_machine_without_slurm_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (check,) = check_slurm()
    assert (check.name, check.state) == ("slurm", "missing")
    assert "ssh LOGIN-NODE milkweed serve" in check.mend
