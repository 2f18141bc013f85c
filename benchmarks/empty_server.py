"""An MCP server with one tool that does nothing: what the SDK alone costs."""

from mcp.server import MCPServer

server = MCPServer("empty")


@server.tool()
async def nothing() -> None:
    """Nothing."""


if __name__ == "__main__":
    server.run("stdio")
