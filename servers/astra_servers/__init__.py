"""Curated MCP servers: what serves something of ours to any MCP client without the host.

`bundle_server` serves one bundle alone, over stdio or HTTP; `fastmcp_server` is the same bundle as
a FastMCP object for `fastmcp run`. Both answer through the sandbox and the world that the host
uses, so a tool behaves the same wherever it is called. Nothing here grades or sees sealed data.
"""
