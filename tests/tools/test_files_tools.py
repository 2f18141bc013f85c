"""The toolset files, on listings and texts that hosts could answer."""

from pathlib import Path
from typing import Any

import pytest

from milkweed.runtime.errors import InvalidArgument, MilkweedError, NotFound, Unavailable
from milkweed.runtime.fetching import Fetched
from milkweed.runtime.file_records import FileDigest, FileEntry, FileListing, FileText
from tests.fakes import FakeMesh
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio

GONE = NotFound("file_not_found", "no /ws/out", "List /ws.")


class Hosts:
    """What the hosts answer: one listing, text or digest each, or an error."""

    def __init__(self) -> None:
        self.listings: dict[int, FileListing | MilkweedError] = {}
        self.digests: dict[int, FileDigest | MilkweedError] = {}
        self.text = FileText("/ws/a.txt", 6, 0.0, "hello\n")
        self.asked: list[Any] = []
        self.fetched: tuple[Fetched, ...] = ()

    async def list_files(self, path: str, *, hosts: Any, pattern: Any, limit: int) -> Any:
        self.asked.append((path, hosts, pattern, limit))
        return {host: self.listings[host] for host in hosts if host in self.listings}

    async def read_file(self, path: str, *, host: int, **rest: Any) -> FileText:
        self.asked.append((path, host, rest))
        return self.text

    async def file_digests(self, path: str, *, hosts: Any) -> Any:
        return {host: self.digests[host] for host in hosts}

    async def fetch(
        self, path: str, *, hosts: Any, destination: str, report: Any, within_s: float
    ) -> tuple[Fetched, ...]:
        self.asked.append((path, hosts, destination))
        await report(1, 2, "1 of 2 files")
        return self.fetched


@pytest.fixture
def hosts(mesh: FakeMesh) -> Hosts:
    mesh.files = Hosts()
    return mesh.files


def listing(*entries: FileEntry, left_out: int = 0, note: str = "") -> FileListing:
    return FileListing("/ws", entries, left_out, note)


def file(name: str, size: int = 10, at: float = 0.0) -> FileEntry:
    return FileEntry(name, "file", size, at)


async def test_entries_that_all_hosts_have_are_shown_once(ask: Ask, hosts: Hosts) -> None:
    hosts.listings = {
        0: listing(file("a.txt", 10, 5.0), FileEntry("ckpt", "directory", 4096)),
        1: listing(file("a.txt", 10, 90.0), file("b.txt", 2048), FileEntry("ckpt", "directory", 8192)),
    }
    assert (await ask("list_remote_files", mesh="demo")).text.splitlines() == [
        "/ws, hosts 0-1:",
        "a.txt  10 B  1970-01-01 00:01:30Z",
        "b.txt  2.0 KB  1970-01-01 00:00:00Z  [host 1]",
        "ckpt/",
    ]


async def test_a_file_that_differs_is_shown_for_each_host(ask: Ask, hosts: Hosts) -> None:
    hosts.listings = {0: listing(file("a", 1)), 1: listing(file("a", 2))}
    text = (await ask("list_remote_files", mesh="demo")).text
    assert "a  1 B  1970-01-01 00:00:00Z  [host 0]" in text
    assert "a  2 B  1970-01-01 00:00:00Z  [host 1]" in text


async def test_a_host_that_cannot_answer_is_said(ask: Ask, hosts: Hosts) -> None:
    hosts.listings = {0: listing(file("a")), 1: GONE}
    assert (
        "host 1: file_not_found: no /ws/out" in (await ask("list_remote_files", mesh="demo", path="out")).text
    )
    hosts.listings = {0: GONE, 1: GONE}
    with pytest.raises(NotFound, match="no /ws/out"):
        await ask("list_remote_files", mesh="demo", path="out")


async def test_a_long_listing_is_cut_and_says_so(ask: Ask, hosts: Hosts) -> None:
    names = ["\u2603" * 40 + f"-{number:04}" for number in range(400)]
    hosts.listings = {host: listing(*map(file, names), left_out=600, note="stopped early") for host in (0, 1)}
    text = (await ask("list_remote_files", mesh="demo", limit=400)).text
    assert len(text.encode()) < 8000
    assert "more; narrow by pattern" in text
    assert text.endswith("[stopped early]")


async def test_odd_entries_are_named(ask: Ask, hosts: Hosts) -> None:
    hosts.listings = {
        0: listing(
            FileEntry("link", "link", target="/data"),
            FileEntry("null", "character device"),
            FileEntry("secret", "unknown", error="Permission denied"),
            FileEntry("new\nline\x1b[1m", "fifo"),
        )
    }
    lines = (await ask("list_remote_files", mesh="demo", hosts="0")).text.splitlines()
    assert lines[1:] == [
        "link -> /data",
        "new\\nline\\x1b[1m  (fifo)",
        "null  (character device)",
        "secret  (Permission denied)",
    ]


@pytest.mark.parametrize(
    ("text", "numbers"), [(None, (0, 1)), ("all", (0, 1)), ("1", (1,)), ("hosts=0", (0,))]
)
async def test_hosts_are_chosen(ask: Ask, hosts: Hosts, text: str | None, numbers: tuple[int, ...]) -> None:
    hosts.listings = {0: listing(), 1: listing()}
    answer = await ask("list_remote_files", mesh="demo", hosts=text, pattern="*.pt", limit=7)
    assert hosts.asked == [(".", numbers, "*.pt", 7)]
    assert "(empty)" in answer.text


@pytest.mark.parametrize("wrong", [{"hosts": "2"}, {"hosts": "x"}, {"limit": 0}, {"path": ""}])
async def test_a_wrong_listing_is_refused(ask: Ask, hosts: Hosts, wrong: dict[str, Any]) -> None:
    with pytest.raises(MilkweedError):
        await ask("list_remote_files", mesh="demo", **wrong)
    assert not hosts.asked


async def test_a_file_is_read_from_one_host(ask: Ask, hosts: Hosts) -> None:
    text = (await ask("read_remote_file", mesh="demo", path="a.txt", tail=5)).text
    assert text == "[/ws/a.txt on host 0, 6 B]\nhello"
    assert hosts.asked[0][:2] == ("a.txt", 0)
    assert hosts.asked[0][2]["tail"] == 5


async def test_what_does_not_fit_is_read_on(ask: Ask, hosts: Hosts) -> None:
    hosts.text = FileText("/ws/a", 99_999, 0.0, "some", 0, next=4, note="3 matches")
    text = (await ask("read_remote_file", mesh="demo", path="a")).text
    assert text.splitlines() == [
        "[/ws/a on host 0, 98 KB, 3 matches]",
        "some",
        "[there is more; to read on: offset=4]",
    ]


async def test_hosts_with_another_file_are_named(ask: Ask, hosts: Hosts) -> None:
    hosts.digests = {0: FileDigest("/ws/a", 6, 0.0, "aa"), 1: FileDigest("/ws/a", 6, 0.0, "aa")}
    assert "[the same on host 1]" in (await ask("read_remote_file", mesh="demo", path="a", hosts="all")).text
    hosts.digests[1] = FileDigest("/ws/a", 6, 0.0, "bb")
    assert (
        "[another file on host 1]" in (await ask("read_remote_file", mesh="demo", path="a", hosts="0-1")).text
    )
    hosts.digests[1] = GONE
    assert (
        "[not readable on host 1]" in (await ask("read_remote_file", mesh="demo", path="a", hosts="0-1")).text
    )


async def test_the_first_host_that_has_it_is_read(ask: Ask, hosts: Hosts) -> None:
    hosts.digests = {0: GONE, 1: FileDigest("/ws/a.txt", 6, 0.0, "aa")}
    text = (await ask("read_remote_file", mesh="demo", path="a.txt", hosts="all")).text
    assert text.splitlines() == ["[/ws/a.txt on host 1, 6 B]", "[not readable on host 0]", "hello"]


async def test_that_a_file_may_be_on_another_host_is_said(
    ask: Ask, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: Any, **__: Any) -> FileText:
        raise GONE

    monkeypatch.setattr(hosts, "read_file", gone)
    with pytest.raises(NotFound, match=r'host 0: no /ws/out[.] hosts="all" reads it') as caught:
        await ask("read_remote_file", mesh="demo", path="out")
    assert str(caught.value).endswith("List /ws.")


async def test_files_are_fetched(ask: Ask, hosts: Hosts, tmp_path: Path, reports: list[str]) -> None:
    hosts.fetched = (
        Fetched(0, "/ws/a", f"{tmp_path}/0/a", 10, "copied"),
        Fetched(1, "/ws/a", f"{tmp_path}/1/a", 10, "unchanged"),
    )
    result = await ask("fetch_files", mesh="demo", path="a", destination=f"{tmp_path}/new")
    assert (result.files, result.bytes, result.unchanged, result.hosts) == (1, 10, 1, "0-1")
    assert result.destination == f"{tmp_path}/new"
    assert hosts.asked[-1] == ("a", (0, 1), f"{tmp_path}/new")
    assert "1 of 2 files" in reports
    assert result.summary() == f"1 file (10 B) to {tmp_path}/new/HOST of hosts 0-1, 1 were there already"


async def test_hosts_that_do_not_have_it_are_said_and_the_others_files_fetched(
    ask: Ask, hosts: Hosts, tmp_path: Path
) -> None:
    hosts.listings = {0: GONE, 1: listing(file("a"))}
    hosts.fetched = (Fetched(1, "/ws/a", f"{tmp_path}/1/a", 10, "copied"),)
    result = await ask("fetch_files", mesh="demo", path="a", destination=str(tmp_path))
    assert hosts.asked[-1] == ("a", (1,), str(tmp_path))
    assert (result.hosts, result.not_fetched) == ("1", ["host 0: no /ws/out"])
    assert "host 0: no /ws/out" in result.summary()


async def test_a_lost_host_does_not_keep_from_fetching_of_the_others(
    ask: Ask, hosts: Hosts, tmp_path: Path
) -> None:
    lost = Unavailable("host_lost", "host 1 is lost", "Release the mesh.")
    hosts.listings = {0: listing(file("a")), 1: lost}
    result = await ask("fetch_files", mesh="demo", path="a", destination=str(tmp_path))
    assert (result.hosts, result.not_fetched) == ("0", ["host 1: host 1 is lost"])
    assert "Release" not in result.summary()


async def test_what_no_host_has_is_an_error(ask: Ask, hosts: Hosts, tmp_path: Path) -> None:
    hosts.listings = {0: GONE, 1: GONE}
    with pytest.raises(NotFound, match="no /ws/out"):
        await ask("fetch_files", mesh="demo", path="a", destination=str(tmp_path))


async def test_that_hosts_see_what_is_fetched_into_their_workspace_is_said(
    ask: Ask, hosts: Hosts, mesh: FakeMesh, tmp_path: Path
) -> None:
    inside = f"{mesh.state.spec.workspace}/kept"
    assert (
        "hosts see it too" in (await ask("fetch_files", mesh="demo", path="a", destination=inside)).summary()
    )
    result = await ask("fetch_files", mesh="demo", path="a", destination=str(tmp_path))
    assert result.note == ""


async def test_nothing_to_fetch_says_where_to_look(ask: Ask, hosts: Hosts, tmp_path: Path) -> None:
    result = await ask("fetch_files", mesh="demo", path="out", destination=str(tmp_path))
    assert result.content()["files"] == 0
    assert "list_remote_files" in result.next


async def test_a_destination_that_is_a_file_is_refused(ask: Ask, hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for destination in (str(tmp_path / "file"), "a\0b", ""):
        with pytest.raises(InvalidArgument):
            await ask("fetch_files", mesh="demo", path="a", destination=destination)
    assert not hosts.asked


@pytest.mark.parametrize("destination", ["/dev/null/x", "x" * 5000, "/tmp/" + "y/" * 3000, "a\0b"])
async def test_a_destination_that_cannot_be_is_refused(ask: Ask, hosts: Hosts, destination: str) -> None:
    with pytest.raises(InvalidArgument, match="invalid_path: destination ") as caught:
        await ask("fetch_files", mesh="demo", path="out", destination=destination)
    assert len(str(caught.value)) < 400
    assert hosts.asked == []
