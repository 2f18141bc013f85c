"""What is written down of the tools is what the tools are: docs/tools.md and the schema snapshot."""

import json
import os
import re
from pathlib import Path

from milkweed.server.cli import COMMANDS
from milkweed.server.docs import main, render
from milkweed.server.tool_calls import describe_tool
from milkweed.tools.registry import BUILT_IN, Registry

DOCUMENT = Path(__file__).parents[2] / "docs" / "tools.md"
SNAPSHOT = Path(__file__).parent / "snapshots" / "tools.json"
EVERY = ",".join(BUILT_IN)
UPDATE = "MILKWEED_UPDATE_SNAPSHOTS"


def test_the_document_is_not_stale() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == render(Registry.load(EVERY)), "run: make docs"


def test_the_schemas_are_those_of_the_snapshot() -> None:
    tools = [describe_tool(tool) for tool in Registry.load(EVERY).tools]
    wire = {tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools}
    text = json.dumps(wire, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get(UPDATE):
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert SNAPSHOT.read_text(encoding="utf-8") == text, f"run: {UPDATE}=1 pytest {Path(__file__).name}"


def test_every_tool_and_argument_is_documented() -> None:
    text = render(Registry.load(EVERY))
    for tool in Registry.load(EVERY).tools:
        assert f"### `{tool.name}`" in text
        for argument, schema in tool.arguments.schema["properties"].items():
            assert f"| `{argument}` |" in text
            for option in schema.get("properties", ()):
                assert f"| `{argument}.{option}` |" in text


def test_the_readme_says_how_many_tools_there_are() -> None:
    readme = DOCUMENT.parents[1] / "README.md"
    assert f"The server offers {len(Registry.load().tools)} tools" in readme.read_text(encoding="utf-8")


def test_the_readme_names_every_command() -> None:
    readme = (DOCUMENT.parents[1] / "README.md").read_text(encoding="utf-8")
    part = readme.partition("## The command line")[2].partition("\n## ")[0]
    assert {name for name in COMMANDS if not re.search(rf"milkweed {name}\b|`{name}`", part)} == set()


def test_a_stale_document_is_found_and_mended(tmp_path: Path) -> None:
    file = tmp_path / "docs" / "tools.md"
    assert main(["--check", str(file)]) == 1
    assert main([str(file)]) == 0
    assert main(["--check", str(file)]) == 0
    file.write_text("old")
    assert main(["--check", str(file)]) == 1
