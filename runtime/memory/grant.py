"""What an owner tells of a region to one who is to reach it by RDMA. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..errors import ProtocolError

__all__ = ["LANES", "Grant"]

LANES = 16
_NUMBERS = struct.Struct("!QQQQQHBI")
_LENGTH = struct.Struct("!H")


@dataclass(frozen=True, slots=True)
class Grant:
    """Addresses are of the owner's memory, keys such as UCX packs them.

    `worker`: where to connect, or, by rdma_cm, `listener` (host, 0 for none). `lanes`: words of eight bytes,
    in each of which one transfer says what it is in: the region's slot and one, else 0. `word`: has `alive`
    in it until the region is dropped, which no other region of the owner ever has. `rights` and `size` are
    the region's (`handle`). Where it is a stage that is granted in a region's place, `stage` is its slot.
    """

    worker: bytes
    listener: tuple[str, int] | None
    lanes: int
    lanes_key: bytes
    region: int
    region_key: bytes
    word: int
    word_key: bytes
    alive: int
    rights: int
    size: int
    stage: int | None = None

    def pack(self) -> bytes:
        host, port = self.listener or ("", 0)
        texts = (self.worker, host.encode(), self.lanes_key, self.region_key, self.word_key)
        packed = b"".join(_LENGTH.pack(len(text)) + text for text in texts)
        stage = 0 if self.stage is None else self.stage + 1
        numbers = (self.lanes, self.region, self.word, self.alive, self.size, port, self.rights, stage)
        return _NUMBERS.pack(*numbers) + packed

    @classmethod
    def unpack(cls, data: bytes) -> Grant:
        """
        Raises:
            ProtocolError: it is none.
        """
        try:
            lanes, region, word, alive, size, port, rights, stage = _NUMBERS.unpack_from(data)
            at, texts = _NUMBERS.size, []
            for _ in range(5):
                (length,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size + length
                texts.append(data[at - length : at])
            worker, host, lanes_key, region_key, word_key = texts
            if at != len(data):
                raise ValueError
            listener = (host.decode("ascii"), port) if port else None
        except (struct.error, ValueError):
            raise ProtocolError(
                "protocol_error", "what the owner tells of its RDMA is malformed", "Use one version."
            ) from None
        return cls(
            worker,
            listener,
            lanes,
            lanes_key,
            region,
            region_key,
            word,
            word_key,
            alive,
            rights,
            size,
            stage - 1 if stage else None,
        )
