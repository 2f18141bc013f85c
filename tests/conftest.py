"""What every test may use."""

import os

import pytest

# Tests of starters ask for them.
os.environ.pop("MILKWEED_WARM_MODULES", None)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def full_size() -> bool:
    """Whether long tests run in their full size (``make test-nightly``) instead of their CI sample."""
    return os.environ.get("MILKWEED_TEST_SCALE") == "nightly"
