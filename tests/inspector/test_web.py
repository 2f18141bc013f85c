"""The Inspector's web page in a headless Chromium: it connects, lists tools and allocates a mesh."""

import re
import shutil
import socket
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from milkweed.tools.registry import Registry
from tests.inspector.conftest import ROOT, TOOLS, Served, listening, node

PICTURES = ROOT / "build" / "inspector-pictures"
WAIT_MS = 60_000


def a_free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def test_a_mesh_is_allocated_from_the_page(served: Served) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "there is no chromium; as root: apt-get install chromium"
    ports = {name: a_free_port() for name in ("CLIENT_PORT", "MCP_SANDBOX_PORT", "MCP_APP_ORIGIN_PORT")}
    more = {"MCP_AUTO_OPEN_ENABLED": "false", "MCP_INSPECTOR_SECRET_STORE": "memory"}
    command = node("mcp-inspector", "--web", *served.target("stdio"))
    with (
        listening(command, {**served.env, **more, **ports}, served.workspace) as url,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page(viewport={"width": 1500, "height": 1100})
        page.set_default_timeout(WAIT_MS)
        page.goto(url)
        _allocate(page, served.workspace)
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / "allocate_mesh.png")
    assert (PICTURES / "allocate_mesh.png").stat().st_size > 10_000
    assert TOOLS.is_dir()


def _allocate(page: Page, workspace: Path) -> None:
    page.get_by_role("switch", name=re.compile("Connect or disconnect")).click(force=True)
    expect(page.get_by_text("Connected", exact=True)).to_be_visible(timeout=WAIT_MS)
    page.get_by_text("Tools", exact=True).first.click()
    heading = page.get_by_role("heading", name=f"Tools ({len(Registry.load().tools)})")
    expect(heading).to_be_visible(timeout=WAIT_MS)
    page.get_by_role("button", name="allocate_mesh").click()
    page.get_by_role("textbox", name="name", exact=True).fill("page")
    page.get_by_role("textbox", name="hosts", exact=True).fill("2")
    page.get_by_role("textbox", name="workspace", exact=True).fill(str(workspace))
    page.get_by_role("button", name="Execute Tool").click()
    shown = page.get_by_text(re.compile(r"mesh-page-\w+")).first
    expect(shown).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_text(re.compile("ready")).first).to_be_visible(timeout=WAIT_MS)
