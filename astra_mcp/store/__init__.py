"""Bundles on disk: a directory or one JSON file, losslessly the same thing.

    bundle.json          format, digests, manifest          tools.py     exact bytes of the code
    server.py            the same lines in every bundle     state.json   canonical JSON
    README.md, LICENSE   generated                          sealed/      tasks.jsonl, audit.json

The first line of sealed/tasks.jsonl is {"canary": ...}, so that every copy of the tasks carries it;
each further line is one task. Invariants: what is loaded has the digests that bundle.json names;
what a round trip could not keep (another spelling of `now`, say) is refused at load; the state is
in canonical order and spelling in both forms, so both run alike; nothing is written partially.
audit.json is neither read nor changed here. Every failure is a `BundleError`.
"""

from astra_mcp.store.reading import (
    find_bundles,
    load_bundle,
    load_json,
    load_public,
    read_identity,
    read_manifest,
)
from astra_mcp.store.strict_json import MAX_FILE_BYTES
from astra_mcp.store.writing import dump_json, foreign_code, repack, save_dir, save_json

__all__ = [
    "MAX_FILE_BYTES",
    "dump_json",
    "find_bundles",
    "foreign_code",
    "load_bundle",
    "load_json",
    "load_public",
    "read_identity",
    "read_manifest",
    "repack",
    "save_dir",
    "save_json",
]
