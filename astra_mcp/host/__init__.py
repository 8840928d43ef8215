"""The host: MCP transport of both eras, episodes, control plane, tokens, leases, journals."""
