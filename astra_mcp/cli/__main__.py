"""`python -m astra_mcp.cli`."""

from astra_mcp.cli import main

main()
