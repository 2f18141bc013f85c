"""One suite of programs, each run warm and cold: nothing that can be observed differs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.hosts import until

from .warm_host import WarmHost, differences, open_warm, without_numbers

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300), pytest.mark.xdist_group("warm")]

SCRIPTS = Path(__file__).with_name("scripts")
WAYS = re.findall(r'^    "([\w-]+)": ', (SCRIPTS / "ending.py").read_text(), re.MULTILINE)

# Worker processes import it too, at any time and several at once: only the first process tells of it.
PACKAGE = """
import os
if "PACKAGE_TOLD" not in os.environ:
    os.environ["PACKAGE_TOLD"] = "yes"
    print("package", __name__)
"""


@pytest.fixture(scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WarmHost]:
    directory = tmp_path_factory.mktemp("warm")
    async with open_warm(directory) as host:
        for script in SCRIPTS.iterdir():
            if script.is_file():
                shutil.copy(script, directory)
        host.write(
            {
                "pkg/__init__.py": PACKAGE,
                "pkg/__main__.py": "import sys\nprint(__spec__.name, sys.argv)\nfrom . import sub\n",
                "pkg/work.py": (SCRIPTS / "processes.py").read_text(),
                "pkg/sub.py": "import sys, inspect\nprint(__name__, sys.argv, len(inspect.stack()))\n1/0\n",
                "broken.py": "def f(:\n",
                "lib/helper.py": "raise RuntimeError('from a helper')\n",
                "deep/main.py": "import os, sys\nprint(sys.path[0], __file__, os.getcwd())\nimport local\n",
                "deep/local.py": "print('local', __file__)\n",
                "café.py": "print('\\udcff'.encode('utf8', 'surrogateescape'), 'é', ascii(__file__))\n",
            }
        )
        (directory / "link.py").symlink_to("deep/main.py")
        yield host


@pytest.mark.parametrize(
    "command",
    [
        ("observe.py", "--word", "two words", ""),
        ("./observe.py",),
        ("-c", "exec(open('observe.py').read())", "word"),
        ("-m", "observe", "word"),
    ],
    ids=["script", "dot", "-c", "-m"],
)
async def test_a_process_sees_the_same_of_itself(host: WarmHost, command: tuple[str, ...]) -> None:
    env = {"TZ": "Asia/Tokyo", "WORD": "a=b\nc", "EMPTY": "", "RAW": "\udcff", "é": "ü"}
    warm, cold = await host.pair(*command, env=env)
    assert differences(warm, cold) == []
    assert warm.exit == cold.exit
    assert cold.exit.code == 0, cold.output


@pytest.mark.parametrize("way", WAYS)
async def test_a_program_ends_the_same_way(host: WarmHost, way: str) -> None:
    warm, cold = await host.pair("ending.py", way)
    assert without_numbers(warm.output) == without_numbers(cold.output)
    assert warm.exit == cold.exit


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "pkg.sub", "x"),
        ("-m", "pkg", "x"),
        ("-m", "pkg.nothing"),
        ("-m", "nothing"),
        ("-m", "json.tool", "--help"),
        ("-mpkg.sub",),
        ("-c", "import sys; print(sys.argv, sys.path[0]); 1/0", "-x", "--", "y"),
        ("-c", "def f(:"),
        ("-c", "import lib.helper"),
        ("broken.py",),
        ("deep/main.py",),
        ("link.py",),
        ("café.py",),
        ("-c", "import this_module_is_nowhere"),
    ],
    ids=" ".join,
)
async def test_a_command_line_means_the_same(host: WarmHost, command: tuple[str, ...]) -> None:
    warm, cold = await host.pair(*command)
    assert without_numbers(warm.output) == without_numbers(cold.output)
    assert warm.exit == cold.exit


async def test_absolute_paths_mean_the_same(host: WarmHost) -> None:
    warm, cold = await host.pair(str(host.directory / "deep" / "main.py"))
    assert warm.output == cold.output
    assert "local" in cold.output


async def test_libraries_work_the_same(host: WarmHost) -> None:
    warm, cold = await host.pair("libraries.py")
    assert differences(warm, cold) == []
    assert cold.exit.code == 0, cold.output


@pytest.mark.parametrize("threads", ["1", "2"])
async def test_libraries_take_their_threads_from_the_environment(host: WarmHost, threads: str) -> None:
    env = {"OMP_NUM_THREADS": threads}
    warm, cold = await host.pair("libraries.py", env=env)
    assert f"torch threads: ({threads}," in cold.output
    assert differences(warm, cold) == []


@pytest.mark.parametrize("command", [("processes.py", "x"), ("-m", "pkg.work", "x")], ids=["script", "-m"])
async def test_processes_of_a_program_work_the_same(host: WarmHost, command: tuple[str, ...]) -> None:
    warm, cold = await host.pair(*command)
    assert differences(warm, cold) == []
    assert warm.exit == cold.exit
    assert "forkserver [[0, 1, 4, 9], [16, 25, 36, 49]]" in cold.output, cold.output


@pytest.mark.parametrize("unbuffered", ["", "1"])
async def test_output_comes_in_the_same_order(host: WarmHost, unbuffered: str) -> None:
    code = (
        "import sys, os\nfor n in '12': print('out'); print('err', file=sys.stderr); os.write(1, b'raw\\n')"
    )
    warm, cold = await host.pair("-c", code, env={"PYTHONUNBUFFERED": unbuffered})
    assert warm.output == cold.output


@pytest.mark.parametrize(
    "flags", [("-u",), ("-O", "-B"), ("-X", "dev"), ("-W", "error", "-q"), ("-P", "-s")], ids=" ".join
)
async def test_flags_mean_the_same(host: WarmHost, flags: tuple[str, ...]) -> None:
    await host.ready(*flags)
    (warm,) = await host.run(host.plan((*flags, "observe.py")))
    (cold,) = await host.run(host.plan((*flags, "observe.py"), warm=False))
    assert (warm.how, cold.how) == ("warm", "cold")
    assert differences(warm, cold) == []


async def test_an_encoding_means_the_same(host: WarmHost) -> None:
    env = {"PYTHONIOENCODING": "latin-1:replace", "LC_ALL": "C", "PYTHONUTF8": "0"}
    warm, cold = await host.pair("observe.py", env=env)
    assert differences(warm, cold) == []


async def test_ranks_meet_over_gloo(host: WarmHost) -> None:
    env = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29731", "GLOO_SOCKET_IFNAME": "lo"}
    await host.ready(env=env)
    outcomes = await host.run(host.plan(*[("collective.py",)] * 4, env=env))
    assert [one.how for one in outcomes] == ["warm"] * 4
    assert [one.output.split() for one in outcomes] == [[str(rank), "4", "10000.0"] for rank in range(4)]


async def test_random_values_differ_between_ranks_and_between_runs(host: WarmHost) -> None:
    await host.ready()
    rows = []
    for _ in range(2):
        outcomes = await host.run(host.plan(*[("random_values.py",)] * 2))
        assert [one.how for one in outcomes] == ["warm"] * 2
        rows += [one.output.split() for one in outcomes]
    for column in zip(*rows, strict=True):
        assert len(set(column)) == 4, column


async def test_a_program_that_patches_torch_leaves_nothing_to_the_next(host: WarmHost) -> None:
    await host.ready()
    code = (
        "import torch, os, sys; torch.ones = None; os.environ['L'] = '1'; sys.path.append('/x'); os.umask(0)"
    )
    await host.run(host.plan(("-c", code)))
    code = (
        "import torch, os, sys; print(torch.ones(1), os.environ.get('L'), '/x' in sys.path, oct(os.umask(0)))"
    )
    (after,) = await host.run(host.plan(("-c", code)))
    assert after.how == "warm"
    assert after.output.startswith("tensor([1.]) None False 0o")
    assert "0o0\n" not in after.output


async def test_an_interrupt_from_outside_ends_it_as_ever(host: WarmHost) -> None:
    await host.ready()
    code = "import signal, time; print('up', flush=True); time.sleep(60)"
    for warm in (True, False):
        plan = host.plan(("-c", code), warm=warm)
        await host.start(plan)
        path = host.directory / "runs" / plan.run / "rank-0.out"
        await until(lambda path=path: path.read_text() == "up\n")
        (started,) = host.events(plan.run, "rank_started")
        assert started.pid is not None
        os.kill(started.pid, 2)
        (outcome,) = await host.finish(plan)
        assert outcome.exit.signal == 2
        assert outcome.output.endswith("KeyboardInterrupt\n")
        assert sys.prefix not in outcome.output
