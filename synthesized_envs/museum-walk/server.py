"""Serves this environment alone, with a fresh state for each run.

python server.py            over stdio, for any MCP client
python server.py --http     over HTTP, on a port of this machine
fastmcp run server.py       the same through FastMCP
"""

from pathlib import Path

from astra_servers.bundle_server import for_fastmcp, main

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    main(HERE)
else:
    mcp = for_fastmcp(HERE)
