"""What every test may use."""

import faulthandler
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from milkweed.runtime.errors import Unavailable
from milkweed.runtime.schedulers.namespaces import check_possible

# Tests of starters ask for them: elsewhere they would import torch beside whatever is tested.
os.environ["MILKWEED_WARM_MODULES"] = ""

# Run by `make test-rdma`, `make test-clusters` and `make test-inspector`: they name the folder and bring up
# what its tests need.
collect_ignore = ["rdma", "clusters", "inspector"]


# Beyond a test's own timeout, which raises in the main thread: nobody hears of it in native code, in a
# callback of an event loop, or where the end of a loop waits for the very task that hangs.
_TOO_LONG_S = 60.0
_BETWEEN_TESTS_S = 300.0
_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # before output is captured


def pytest_unconfigure(config: pytest.Config) -> None:
    faulthandler.cancel_dump_traceback_later()
    os.close(config.stash[_stderr])


def _end_later(config: pytest.Config, seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[_stderr])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What hangs for good ends this process, after the stacks of all its threads: the other tests go on."""
    marker = item.get_closest_marker("timeout")
    limit = marker.args[0] if marker else item.config.getvalue("timeout") or item.config.getini("timeout")
    _end_later(item.config, float(limit) + _TOO_LONG_S)
    try:
        return (yield)
    finally:
        _end_later(item.config, _BETWEEN_TESTS_S)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def full_size() -> bool:
    """Whether long tests run in their full size (``make test-nightly``) instead of their CI sample."""
    return os.environ.get("MILKWEED_TEST_SCALE") == "nightly"


@pytest.fixture
def namespaces() -> None:
    """For tests of hosts with networks of their own, which not every machine allows."""
    try:
        check_possible()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def places() -> Iterator[dict[str, str]]:
    """Environment variables that name directories of this test alone; short, since sockets live there."""
    root = Path(tempfile.mkdtemp(prefix="mw-", dir="/tmp"))
    (root / "r").mkdir(mode=0o700)
    yield {"MILKWEED_STATE_DIR": str(root / "s"), "MILKWEED_RUNTIME_DIR": str(root / "r")}
    shutil.rmtree(root, ignore_errors=True)
