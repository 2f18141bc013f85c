"""Asking for devices: by a process of its own, once for all who ask, and never waiting for a dead driver."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from milkweed.runtime.agent.children import Children, open_children
from milkweed.runtime.codec import to_json
from milkweed.runtime.devices import Device, DeviceNote, DeviceView
from milkweed.runtime.devices.asking import DeviceAsker
from tests.runtime.hosts import until

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0
NOTED = Device(0, "nvidia", "H200", notes=(DeviceNote("ecc", "x"),))
VIEW = json.dumps(to_json(DeviceView((NOTED,))))


@pytest.fixture
async def tasks() -> AsyncIterator[anyio.abc.TaskGroup]:
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()


@pytest.fixture
async def children(tasks: anyio.abc.TaskGroup) -> AsyncIterator[Children]:
    async with open_children(subreaper=False) as found:
        yield found


def asker(children: Children, tasks: anyio.abc.TaskGroup, code: str, **options: float) -> DeviceAsker:
    return DeviceAsker(children, tasks, command=(sys.executable, "-c", code), **options)


async def test_the_answer_is_a_view_whatever_a_library_printed_before(
    children: Children, tasks: anyio.abc.TaskGroup
) -> None:
    asking = asker(children, tasks, f"print('hello from a library'); print('''{VIEW}''')")
    assert (await asking.ask(("nvidia",), DEADLINE_S)).devices == (NOTED,)


async def test_where_there_is_no_vendor_no_process_is_started(
    children: Children, tasks: anyio.abc.TaskGroup, tmp_path: Path
) -> None:
    asking = asker(children, tasks, f"open({str(tmp_path / 'asked')!r}, 'w')")
    assert await asking.ask((), DEADLINE_S) == DeviceView()
    assert not (tmp_path / "asked").exists()


async def test_all_who_ask_at_once_share_one_process_and_its_answer_is_good_for_a_while(
    children: Children, tasks: anyio.abc.TaskGroup, tmp_path: Path
) -> None:
    code = f"open({str(tmp_path / 'asked')!r}, 'a').write('x'); print('''{VIEW}''')"
    asking = asker(children, tasks, code, fresh_s=3600.0)
    found: list[DeviceView] = []

    async def ask() -> None:
        found.append(await asking.ask(("nvidia",), DEADLINE_S))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ask)
    await ask()
    assert found == [found[0]] * 6
    assert (tmp_path / "asked").read_text() == "x"


async def test_a_driver_that_hangs_is_told_in_time_and_not_asked_twice(
    children: Children, tasks: anyio.abc.TaskGroup, tmp_path: Path
) -> None:
    pipe = tmp_path / "driver"
    os.mkfifo(pipe)
    code = (
        f"open({str(tmp_path / 'asked')!r}, 'a').write('x'); open({str(pipe)!r}).read(); print('''{VIEW}''')"
    )
    asking = asker(children, tasks, code, fresh_s=0.0, longest_s=3600.0)
    for _ in range(2):
        view = await asking.ask(("nvidia",), 0.0)
        assert "has not answered" in view.problem
        assert "dmesg" in view.mend
    await until((tmp_path / "asked").exists)
    with anyio.fail_after(DEADLINE_S):
        await anyio.to_thread.run_sync(pipe.write_text, "")  # it comes back
    assert (await asking.ask(("nvidia",), DEADLINE_S)).devices == (NOTED,)


async def test_a_driver_that_never_answers_is_given_up(
    children: Children, tasks: anyio.abc.TaskGroup
) -> None:
    asking = asker(children, tasks, "import time; time.sleep(3600)", longest_s=0.2)
    view = await asking.ask(("amd",), DEADLINE_S)
    assert view.problem == "the driver of amd did not answer within 0.2 s"
    assert children.alive == ()


async def test_a_library_that_crashes_is_told(children: Children, tasks: anyio.abc.TaskGroup) -> None:
    crash = "import os; os.write(2, b'librocm: boom'); os.kill(os.getpid(), 11)"
    view = await asker(children, tasks, crash).ask(("amd",), DEADLINE_S)
    assert view.problem == "the process that looks at devices ended with signal 11: librocm: boom"


@pytest.mark.parametrize("said", ["", "no json", "[1]", '{"devices": 3}'])
async def test_what_is_no_view_is_told(children: Children, tasks: anyio.abc.TaskGroup, said: str) -> None:
    view = await asker(children, tasks, f"print({said!r})").ask(("amd",), DEADLINE_S)
    assert view.problem.startswith("the process that looks at devices ended")
