"""RDMA to a device that no card reaches: its owner copies pieces to and from a stage, which cards reach."""

from __future__ import annotations

from collections.abc import Sequence

from .outcomes import DONE
from .providers import Job
from .rdma_link import Link
from .staging import AREAS, PIECE

__all__ = ["StagedLink"]

_Piece = tuple[int, int]


class StagedLink(Link):
    """One area of the stage is moved while the owner works on the other: so one transfer at a time.

    Where it ends in the middle, answers are still to come: it is of no further use then.
    """

    is_staged = True

    def move(self, job: Job) -> tuple[int, int]:
        """Status, and UCX's own where it failed.

        Raises:
            OSError: the owner is gone, or the time is over. ProtocolError.
        """
        pieces = [(at, min(PIECE, job.length - at)) for at in range(0, job.length, PIECE)] or [(0, 0)]
        outcome = self._write(job, pieces) if job.write else self._read(job, pieces)
        self.is_spent = outcome[0] != DONE
        return outcome

    def _read(self, job: Job, pieces: Sequence[_Piece]) -> tuple[int, int]:
        self._ask(job, pieces, 0)
        for number in range(len(pieces)):
            status, error = self._connection.stage_answer(job, 0)
            if status != DONE:
                return status, error
            if number + 1 < len(pieces):
                self._ask(job, pieces, number + 1)
            status, error = self._move_piece(job, pieces, number)
            if status != DONE:
                return status, error
        return DONE, 0

    def _write(self, job: Job, pieces: Sequence[_Piece]) -> tuple[int, int]:
        asked = 0
        for number in range(len(pieces)):
            if asked == AREAS:
                asked -= 1
                status, error = self._connection.stage_answer(job, asked)
                if status != DONE:
                    return status, error
            status, error = self._move_piece(job, pieces, number)
            if status != DONE:
                return status, error
            self._ask(job, pieces, number)
            asked += 1
        while asked:
            asked -= 1
            status, error = self._connection.stage_answer(job, asked)
            if status != DONE:
                return status, error
        return DONE, 0

    def _ask(self, job: Job, pieces: Sequence[_Piece], number: int) -> None:
        at, length = pieces[number]
        self._connection.ask_stage(job, at, length, number % AREAS)

    def _move_piece(self, job: Job, pieces: Sequence[_Piece], number: int) -> tuple[int, int]:
        at, length = pieces[number]
        return self._moved(job, number % AREAS * PIECE, length, job.local.part(at, length))
