"""Serves this environment alone, with a fresh state for each run.

python server.py            over stdio, for any MCP client
python server.py --http     over HTTP, on a port of this machine
fastmcp run server.py       the same through FastMCP
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Nothing of this folder is imported: its code runs in the sandbox and nowhere else.
sys.path = [entry for entry in sys.path if os.path.abspath(entry) != HERE]

from pathlib import Path  # noqa: E402

from astra_servers.bundle_server import for_fastmcp, main  # noqa: E402

if __name__ == "__main__":
    main(Path(HERE))
else:
    mcp = for_fastmcp(Path(HERE))
