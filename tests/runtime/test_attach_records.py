"""What a controller is told crosses as text."""

from __future__ import annotations

import pytest

from milkweed.runtime.attach_records import (
    AttachedHost,
    AttachPlace,
    decode_attach_place,
    encode_attach_place,
)

HOSTS = (AttachedHost("a-0", "/s/h0"), AttachedHost("a-1", "/s/h1"))


@pytest.mark.parametrize(
    "place", [AttachPlace("mesh-a", "/s/k", HOSTS), AttachPlace("mesh-a", "/s/k", HOSTS, here=0, run="run-a")]
)
def test_a_place_is_read_as_it_was_written(place: AttachPlace) -> None:
    assert decode_attach_place(encode_attach_place(place)) == place


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"mesh": "mesh-a"}', '{"hosts": 3}'])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_attach_place(text)
