"""Exceptions of endpoints as their caller gets them."""

from __future__ import annotations

import anyio
import pytest

from milkweed.runtime import ActorError, ActorMesh, ProcMesh
from milkweed.runtime.errors import InvalidArgument, MeshError, ProtocolError, Unavailable
from tests.runtime.meshes.actors import Failing, Odd
from tests.runtime.meshes.conftest import DEADLINE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
async def failing(procs: ProcMesh) -> ActorMesh:
    return await procs.slice(gpus=0).spawn("failing", Failing)


async def error_of(actor: ActorMesh, name: str, *args: object) -> ActorError:
    with anyio.fail_after(DEADLINE_S), pytest.raises(ActorError) as caught:
        await getattr(actor, name).call_one(*args)
    assert await actor.well.call_one() is True
    return caught.value


@pytest.mark.parametrize("name", ["value_error", "value_error_in_turn"])
async def test_an_exception_arrives_with_its_type_words_and_traceback(failing: ActorMesh, name: str) -> None:
    error = await error_of(failing, name, "no such layer")
    assert error.exception_type == "ValueError"
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) == "no such layer"
    assert f"failing.{name} on rank 0 raised ValueError: no such layer" in str(error)
    assert f"in {name}\n    raise ValueError(words)" in error.remote_traceback
    assert "runtime/proc" not in error.remote_traceback


async def test_a_chain_of_causes_is_in_the_traceback(failing: ActorMesh) -> None:
    error = await error_of(failing, "chained")
    assert "KeyError: 'missing'" in error.remote_traceback
    assert "direct cause" in error.remote_traceback
    assert error.remote_traceback.rstrip().endswith("RuntimeError: outer")


async def test_an_exception_that_cannot_be_made_again_is_told_in_words(failing: ActorMesh) -> None:
    error = await error_of(failing, "odd")
    assert (error.exception, error.raised) == (None, "Odd: ab")
    assert error.exception_type.endswith(".Odd")
    assert Odd("a", "b").args == ("ab",)


async def test_an_exception_without_words_is_told_too(failing: ActorMesh) -> None:
    error = await error_of(failing, "mute")
    assert "Mute" in error.exception_type
    assert "its __str__ raised RuntimeError" in str(error)


async def test_an_exception_of_a_local_class_arrives_as_itself(failing: ActorMesh) -> None:
    error = await error_of(failing, "local_class")
    assert type(error.exception).__name__ == "Local"
    assert str(error.exception) == "from within"


@pytest.mark.parametrize(
    ("name", "kind"), [("generator_exit", "GeneratorExit"), ("stop_iteration", "RuntimeError")]
)
async def test_odd_exceptions_are_answers_and_end_nothing(failing: ActorMesh, name: str, kind: str) -> None:
    assert (await error_of(failing, name)).exception_type == kind


async def test_an_endpoint_that_cancels_itself_is_told_as_cancelled(failing: ActorMesh) -> None:
    with anyio.fail_after(DEADLINE_S), pytest.raises(Unavailable) as caught:
        await failing.cancelled_itself.call_one()
    assert caught.value.code == "cancelled"
    assert await failing.well.call_one() is True


@pytest.mark.parametrize("name", ["unpicklable", "unpicklable_async"])
async def test_a_result_that_cannot_be_sent_is_the_callers_error(failing: ActorMesh, name: str) -> None:
    error = await error_of(failing, name)
    assert isinstance(error.exception, InvalidArgument)
    assert error.exception.code == "unpicklable"


async def test_a_result_that_cannot_be_made_here_is_told(failing: ActorMesh) -> None:
    with anyio.fail_after(DEADLINE_S), pytest.raises(ProtocolError) as caught:
        await failing.unreadable.call_one()
    assert caught.value.code == "unreadable_result"
    assert "not on this side" in caught.value.cause
    assert await failing.well.call_one() is True


async def test_an_error_of_one_rank_hides_no_other(procs: ProcMesh) -> None:
    failing = await procs.spawn("failing", Failing)
    with anyio.fail_after(DEADLINE_S):
        outcome = await failing.value_error.call("both")
        assert list(outcome.errors()) == [0, 1]
        with pytest.raises(MeshError, match="2 of 2 ranks failed: ValueError: both"):
            outcome.values()
