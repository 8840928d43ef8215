"""ASTRA-MCP: verifiable MCP tool environments, served from a sandboxed host, graded over MCP."""

__version__ = "0.1.0"
