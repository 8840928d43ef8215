"""The official Python SDK's `mcp.Client`."""

from typing import Any

from mcp import Client, StdioServerParameters, stdio_client
from walk import TARGET, main, walk


async def visit() -> dict[str, Any]:
    """Connect and walk."""
    if "url" in TARGET:
        server: Any = TARGET["url"]
    else:
        command, *args = TARGET["command"]
        server = stdio_client(StdioServerParameters(command=command, args=args))
    async with Client(server, mode=TARGET["mode"]) as client:

        async def call(name: str, args: dict[str, Any]) -> tuple[bool, Any, str]:
            result = await client.call_tool(name, args)
            return bool(result.is_error), result.structured_content, result.content[0].text

        tools = (await client.list_tools()).tools
        return await walk(call, tools, client)


main(visit)
