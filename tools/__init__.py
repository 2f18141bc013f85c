"""What each tool does: judgement on top of the runtime, with no MCP type in it.

A library adds a toolset of its own with the same decorator and an entry point:

    @tool("sweeps", read_only=True)
    async def list_sweeps(call: Call) -> Text:
        \"\"\"Sweeps of this user.\"\"\"

    [project.entry-points."milkweed.toolsets"]
    sweeps = "my_library.sweeps"
"""

from .registry import Call, Registry, Text, Tool, tool
from .results import Result

__all__ = ["Call", "Registry", "Result", "Text", "Tool", "tool"]
