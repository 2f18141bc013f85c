from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime.errors import Unavailable
from milkweed.runtime.memory.here import listen_address
from milkweed.runtime.mesh_secret import MeshSecrets, make_secret, mesh_secret


def test_a_secret_is_made_once_and_for_its_user_only(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    first = make_secret(path).read_bytes()
    assert make_secret(path).read_bytes() == first
    assert make_secret(tmp_path / "other").read_bytes() != first
    assert len(first) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other", "secret"]


def test_a_process_of_a_mesh_has_its_secret_and_others_have_none(tmp_path: Path) -> None:
    path = make_secret(tmp_path / "secret")
    assert mesh_secret({"MILKWEED_SECRET_FILE": str(path)}) == path.read_bytes()
    assert mesh_secret({}) == b""
    with pytest.raises(Unavailable, match="cannot read"):
        mesh_secret({"MILKWEED_SECRET_FILE": str(tmp_path / "gone")})


@pytest.mark.parametrize("content", ["", " \n", "abc"])
def test_a_file_without_a_secret_in_it_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    with pytest.raises(Unavailable, match="no secret in it"):
        mesh_secret({"MILKWEED_SECRET_FILE": str(path)})


def test_a_process_knows_the_secrets_of_its_own_mesh_and_of_those_it_attached_to(tmp_path: Path) -> None:
    one, two = make_secret(tmp_path / "one"), make_secret(tmp_path / "two")
    secrets = MeshSecrets({"MILKWEED_MESH": "mesh-one", "MILKWEED_SECRET_FILE": str(one)})
    assert secrets.names == ("mesh-one",)
    assert secrets.of("mesh-one") == one.read_bytes()
    secrets.learn("mesh-two", two)
    secrets.learn("mesh-one", two)  # its own stays
    assert secrets.names == ("mesh-two", "mesh-one")
    assert [secrets.of(mesh) for mesh in secrets.names] == [two.read_bytes(), one.read_bytes()]
    assert secrets.of("") is None


def test_a_process_of_no_mesh_has_an_empty_secret_beside_those_it_learns(tmp_path: Path) -> None:
    secrets = MeshSecrets({"MILKWEED_MESH": "its own host"})
    assert (secrets.names, secrets.of("")) == (("",), b"")
    secrets.learn("mesh-one", tmp_path / "one")
    with pytest.raises(Unavailable, match="directory_unusable: cannot read"):
        secrets.of("mesh-one")
    make_secret(tmp_path / "one")
    assert secrets.of("mesh-one") == (tmp_path / "one").read_bytes()
    assert secrets.names == ("mesh-one", "")


@pytest.mark.parametrize(
    ("env", "address"),
    [
        ({}, None),
        ({"MILKWEED_HOST_ADDRESS": "127.0.0.1"}, None),
        ({"MILKWEED_HOST_ADDRESS": "::1"}, None),
        ({"MILKWEED_HOST_ADDRESS": "10.77.0.2"}, "10.77.0.2"),
        ({"MILKWEED_HOST_ADDRESS": "node7"}, "node7"),
        ({"MILKWEED_HOST_ADDRESS": "10.77.0.2", "MILKWEED_BUFFER_ADDRESS": "10.9.0.2"}, "10.9.0.2"),
        ({"MILKWEED_HOST_ADDRESS": "10.77.0.2", "MILKWEED_BUFFER_ADDRESS": ""}, None),
        ({"MILKWEED_BUFFER_ADDRESS": "127.0.0.1"}, "127.0.0.1"),
    ],
)
def test_nothing_listens_where_no_other_host_could_come_from(
    env: dict[str, str], address: str | None
) -> None:
    assert listen_address(env) == address
