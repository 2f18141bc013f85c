"""Milkweed hands a supercomputer to an AI agent: an MCP server around an actor runtime."""

__version__ = "0.1.0"
