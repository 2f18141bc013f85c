"""The directories that Milkweed uses: its own, and nobody else's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from milkweed.runtime.errors import Unavailable
from milkweed.runtime.paths import SOCKET_PATH_MAX, Places, proc_sockets

VARIABLES = ("MILKWEED_STATE_DIR", "MILKWEED_RUNTIME_DIR")


@pytest.fixture(params=VARIABLES)
def directory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Not there yet: one of the two directories; the other one is in order."""
    for variable in VARIABLES:
        monkeypatch.setenv(variable, str(tmp_path / variable))
    return tmp_path / str(request.param)


def refusal() -> str:
    with pytest.raises(Unavailable) as caught:
        Places.from_environment()
    assert caught.value.code == "directory_unusable"
    return caught.value.cause


def test_a_directory_is_made_for_this_user_alone(directory: Path) -> None:
    before = os.umask(0)
    try:
        places = Places.from_environment()
    finally:
        os.umask(before)
    assert directory in (places.state, places.runtime)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777])
def test_a_directory_that_is_open_to_others_is_refused(directory: Path, mode: int) -> None:
    directory.mkdir()
    directory.chmod(mode)
    assert refusal() == f"{directory} must be a directory of this user with mode 0700"
    assert stat.S_IMODE(directory.stat().st_mode) == mode


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, 65534, 65534)
    assert "of this user" in refusal()


def test_a_link_is_refused_although_it_leads_to_a_good_directory(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "good").mkdir(mode=0o700)
    directory.symlink_to("good")
    # A link is 0777 and ours: what it leads to may be changed by whoever owns that path.
    assert str(directory) in refusal()


def test_a_directory_that_cannot_be_made_is_refused(directory: Path) -> None:
    directory.write_text("a file")
    assert refusal() == f"cannot make {directory}: File exists"


def test_a_runtime_directory_is_refused_where_a_socket_would_not_fit() -> None:
    mesh = "mesh-demo-a2b"
    room = SOCKET_PATH_MAX - len("/demo-a2b/h9999.9999999c")
    fits = Places(Path("/s"), Path("/" + "r" * (room - 1))).mesh(mesh)
    longest = proc_sockets(fits.host_socket(9999), 9_999_999)[1]
    assert len(os.fsencode(longest)) == SOCKET_PATH_MAX
    with pytest.raises(Unavailable, match=r"directory_unusable: the runtime directory /r+ is .*108 bytes"):
        Places(Path("/s"), Path("/" + "r" * room)).mesh(mesh)
