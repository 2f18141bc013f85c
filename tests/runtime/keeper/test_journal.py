from __future__ import annotations

from milkweed.runtime.errors import Unavailable
from milkweed.runtime.keeper.journal import Journal


def test_what_the_index_refuses_is_written_once_it_can_be_and_only_the_newest_of_a_key() -> None:
    written: list[str] = []
    full = True

    def entry(text: str) -> None:
        if full:
            raise Unavailable("index_unusable", "disk full", "Make room.")
        written.append(text)

    journal = Journal()
    for key, text in (("run", "old"), ("mesh", "ready"), ("run", "new")):
        journal.write(key, lambda text=text: entry(text))  # type: ignore[misc]
    assert written == []
    full = False
    journal.flush()
    assert written == ["new", "ready"]
    journal.flush()
    assert written == ["new", "ready"]
