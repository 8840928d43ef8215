"""The official conformance suite against this host."""
