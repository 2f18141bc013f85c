"""The surface: the MCP application, the command line, and the documentation of the tools."""
