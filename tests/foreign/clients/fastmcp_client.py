"""The FastMCP client."""

from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from walk import TARGET, main, walk


async def visit() -> dict[str, Any]:
    """Connect and walk."""
    if "url" in TARGET:
        server: Any = TARGET["url"]
    else:
        command, *args = TARGET["command"]
        server = StdioTransport(command=command, args=args)
    async with Client(server, mode=TARGET["mode"]) as client:

        async def call(name: str, args: dict[str, Any]) -> tuple[bool, Any, str]:
            result = await client.call_tool(name, args, raise_on_error=False)
            return result.is_error, result.structured_content, result.content[0].text

        return await walk(call, await client.list_tools(), client)


main(visit)
