"""Clients of an ASTRA-MCP host: a thin MCP client, the control plane, agents, collector, report."""

from __future__ import annotations

from astra_clients.control import ControlClient, EpisodeRequest
from astra_clients.exchange import McpSettings, new_pool
from astra_clients.mcp_client import McpClient, ToolResponse

__all__ = [
    "ControlClient",
    "EpisodeRequest",
    "McpClient",
    "McpSettings",
    "ToolResponse",
    "new_pool",
]
