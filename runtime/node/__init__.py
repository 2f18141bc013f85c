"""The process's node: its loop and thread, its connections, and futures for async and sync code."""

from .future import Future
from .node import Node, node, on_node_thread

__all__ = ["Future", "Node", "node", "on_node_thread"]
