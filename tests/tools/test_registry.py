"""The registry: which tools a server offers, and what a library can add."""

import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

import milkweed.tools
from milkweed.runtime.errors import InvalidArgument, NotFound
from milkweed.tools import registry
from milkweed.tools.registry import Call, Registry, Text, Tool, tool


@tool("extra", read_only=True)
async def look(call: Call) -> Text:
    """Looks."""
    return Text("seen")


@tool("extra", destructive=True)
async def destroy(call: Call, what: str) -> Text:
    """Destroys."""
    return Text(what)


def plugged(monkeypatch: pytest.MonkeyPatch, *modules: tuple[str, object]) -> None:
    """Installs entry points, each with what it gives."""
    points = {}
    for name, content in modules:
        module = ModuleType(f"plugin_{name}")
        module.content = content  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        points[name] = EntryPoint(name, f"{module.__name__}:content", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_entry_points", lambda: points)


def names(loaded: Registry) -> set[str]:
    return {item.name for item in loaded.tools}


def test_what_a_library_may_import_is_pinned() -> None:
    assert milkweed.tools.__all__ == ["Call", "Registry", "Result", "Text", "Tool", "tool"]
    assert all(hasattr(milkweed.tools, name) for name in milkweed.tools.__all__)


def test_a_tool_is_its_function() -> None:
    assert (look.name, look.toolset, look.description) == ("look", "extra", "Looks.")
    assert (look.read_only, look.destructive, look.idempotent) == (True, False, True)
    assert look.title == "Look"


def test_wrapped_lines_of_a_docstring_become_one() -> None:
    @tool("extra")
    async def wordy(call: Call) -> Text:
        """One
        two.

        - three
        - four
        """
        return Text("")

    assert wordy.description == "One two.\n\n- three\n- four"


@pytest.mark.parametrize("docstring", ["", "x" * 3000])
def test_a_tool_without_a_fitting_docstring_is_refused(docstring: str) -> None:
    async def silent(call: Call) -> Text:
        return Text("")

    silent.__doc__ = docstring
    with pytest.raises(ValueError, match="docstring of silent"):
        tool("extra")(silent)


def test_the_default_toolsets_are_there() -> None:
    assert Registry.load().toolsets == ("mesh", "run", "files", "debug")


def test_toolsets_are_chosen_by_name() -> None:
    assert Registry.load("run, debug").toolsets == ("run", "debug")
    assert Registry.load("default, train, program, amd").toolsets == Registry.load("all").toolsets


@pytest.mark.parametrize("toolsets", ["nonsense", "mesh,nonsense", "", ","])
def test_an_unknown_toolset_is_refused(toolsets: str) -> None:
    with pytest.raises(InvalidArgument, match="toolsets: mesh, run, files, debug, train, program"):
        Registry.load(toolsets)


def test_read_only_leaves_out_what_changes_something() -> None:
    loaded = Registry.load(read_only=True)
    assert all(item.read_only for item in loaded.tools)
    assert {"list_meshes", "stack_dump", "read_run_output"} <= names(loaded)
    assert not {"release_mesh", "run_on_mesh", "fetch_files"} & names(loaded)
    with pytest.raises(InvalidArgument, match=r"unsupported: release_mesh changes something.*--read-only"):
        loaded.find("release_mesh")


def test_an_unknown_tool_names_the_nearest_and_what_could_be_had() -> None:
    loaded = Registry.load("mesh")
    with pytest.raises(
        NotFound, match=r"tool_not_found: no tool 'alocate_mesh'\. Did you mean allocate_mesh\?"
    ):
        loaded.find("alocate_mesh")
    with pytest.raises(NotFound, match="More with serve --toolsets: run, files, debug, train, program"):
        loaded.find("stack_dump")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are named look"):
        Registry([look, look])


@pytest.mark.parametrize("content", [[look, destroy], (look, destroy)])
def test_a_library_adds_a_toolset_under_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, content: Any
) -> None:
    plugged(monkeypatch, ("sweeps", content))
    loaded = Registry.load("all")
    assert {"look", "destroy"} <= names(loaded)
    assert loaded.find("look").toolset == "sweeps"
    assert names(Registry.load("sweeps")) == {"look", "destroy"}
    assert "look" not in names(Registry.load("default"))


def test_a_toolset_may_be_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("of_tools")
    module.look = look  # type: ignore[attr-defined]
    module.other = 3  # type: ignore[attr-defined]
    plugged(monkeypatch, ("sweeps", module))
    assert names(Registry.load("sweeps")) == {"look"}


def undescribable() -> Tool:
    async def strange(call: Call, what: "NoSuchType") -> Text:  # type: ignore[name-defined]  # noqa: F821
        """Cannot be described."""
        return Text("")

    return tool("extra")(strange)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("sweeps", 3, "expected a module or an iterable of tools"),
        ("sweeps", [], "there is no tool in it"),
        ("sweeps", [look, look], "two tools are named look"),
        ("mesh", [look], "the toolset name mesh is Milkweed's own"),
        ("sweeps", [undescribable()], "NoSuchType"),
    ],
)
def test_a_broken_plugin_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, content: Any, why: str
) -> None:
    plugged(monkeypatch, (name, content))
    assert names(Registry.load("all")) == names(Registry.load(",".join(registry.BUILT_IN)))
    warning = capsys.readouterr()
    assert warning.out == ""
    assert f"toolset {name} (plugin_{name}:content) is left out" in warning.err
    assert why in warning.err


def test_a_plugin_that_cannot_be_imported_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {"gone": EntryPoint("gone", "no_such_module_anywhere", registry.ENTRY_POINTS)}
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    assert Registry.load("default,gone").toolsets == ("mesh", "run", "files", "debug")
    assert "No module named 'no_such_module_anywhere'" in capsys.readouterr().err
