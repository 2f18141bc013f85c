"""The MCP Inspector's page, in headless Chromium, on `milkweed serve --http`."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from milkweed.tools.registry import Registry
from tests.server.conftest import MILKWEED, Cli, serving
from tests.server.node import ARTEFACTS, INSPECTOR, MODULES, chromium, environment, node, run

_PAGE = Path(__file__).with_name("page.mjs")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+\S*MCP_INSPECTOR_API_TOKEN=\w+")


def free_ports(count: int) -> list[str]:
    """The Inspector takes no port 0."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [str(one.getsockname()[1]) for one in sockets]


@contextmanager
def inspector_page(server: str, home: Path) -> Iterator[str]:
    """The URL of the Inspector's page for a server's."""
    port, sandbox, app = free_ports(3)
    ports = {"CLIENT_PORT": port, "MCP_SANDBOX_PORT": sandbox, "MCP_APP_ORIGIN_PORT": app}
    command = [node(), str(INSPECTOR), "--web", "--transport", "http", "--server-url", server]
    env = {
        **environment(home),
        **ports,
        "MCP_AUTO_OPEN_ENABLED": "false",
        "MCP_INSPECTOR_SECRET_STORE": "memory",
    }
    log = home / "inspector.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=home
        ) as process,
    ):
        assert process.stdout is not None
        try:
            said = ""
            for line in process.stdout:
                said += line
                if found := _ADDRESS.search(line):
                    yield found.group()
                    break
            else:
                raise AssertionError(f"the Inspector has no page: {said}{log.read_text()}")
        finally:
            process.terminate()


def test_a_person_connects_lists_the_tools_and_allocates_a_mesh(
    places: dict[str, str], cli: Cli, tmp_path: Path
) -> None:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    screenshot = ARTEFACTS / "inspector-allocate-mesh.png"
    screenshot.unlink(missing_ok=True)
    with (
        serving([*MILKWEED, "serve", "--http", "0"], places, tmp_path) as server,
        inspector_page(server, tmp_path) as url,
    ):
        asked = {
            "modules": str(MODULES),
            "chromium": chromium(),
            "url": url,
            "name": "from-the-page",
            "screenshot": str(screenshot),
        }
        done = run(_PAGE, json.dumps(asked), home=tmp_path, timeout=150)
    assert done.returncode == 0, f"{done.stderr}\n{screenshot} shows where it stood"
    seen = json.loads(done.stdout)
    assert seen["tools"] == [tool.name for tool in Registry.load().tools]
    assert ": ready, 1 x 1 ranks" in seen["result"]
    assert seen["result"].partition(":")[0] in cli("status").stdout
    assert screenshot.read_bytes().startswith(b"\x89PNG")
