"""The process's node: its loop and thread, its connections, and futures for async and sync code."""

from .escalation import Escalation, on_unhandled
from .feed import Feed
from .future import Future
from .node import Node, node, on_node_thread

__all__ = ["Escalation", "Feed", "Future", "Node", "node", "on_node_thread", "on_unhandled"]
