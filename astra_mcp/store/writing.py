"""Saving: one temporary directory or file, then one rename, so that nothing is ever half written.

Files of the directory that are not the bundle's own (sealed/audit.json, notes) are carried over
when a bundle is written again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from astra_mcp.bundle import Bundle
from astra_mcp.canonical import canonical_bytes
from astra_mcp.errors import BundleError
from astra_mcp.store.card import licence_text, readme
from astra_mcp.store.reading import (
    CODE,
    HEAD,
    STATE,
    TASKS,
    PathLike,
    canonical_state,
    load_bundle,
    load_json,
    part_digests,
)
from astra_mcp.store.strict_json import (
    one_line,
    parse,
    pretty,
    read_bytes,
    read_text,
    write_bytes,
)

Json = Any

_CODE: Final = frozenset({".py", ".pyc", ".so", ".pth", ".pyd", ".zip", ".egg"})
_OWN: Final = frozenset({HEAD, CODE, STATE, TASKS, "server.py", "README.md", "LICENSE"})


def dump_json(bundle: Bundle) -> bytes:
    """The single-file form; fields that were not spelled stay unspelled.

    Raises:
        BundleError: a value has no JSON form.
    """
    raw = bundle.model_dump(mode="json", exclude_unset=True)
    return pretty(raw | {"state": canonical_state(bundle.state)}).encode()


def save_json(bundle: Bundle, path: PathLike, overwrite: bool = False) -> None:
    """Write the single-file form.

    Raises:
        BundleError: the file exists and `overwrite` is not set, or a value has no JSON form.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise _exists(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, dump_json(bundle))


def save_dir(bundle: Bundle, path: PathLike, overwrite: bool = False) -> None:
    """Write the directory form.

    Args:
        overwrite: Replace a bundle that is there; files that are not its own are kept.

    Raises:
        BundleError: `path` exists and may not be replaced, or a value has no JSON form.
    """
    path = Path(os.path.abspath(path))  # "." has no name to write a neighbour by
    contents = _contents(load_json(dump_json(bundle), f"bundle {bundle.ref}"))
    _check_target(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.new-", dir=path.parent))
    try:
        fresh.chmod(0o755)
        for name, data in contents.items():
            (fresh / name).parent.mkdir(exist_ok=True)
            write_bytes(fresh / name, data)
        _carry_over(path, fresh)
        _keep_layout(path, fresh)
        _swap(fresh, path)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def foreign_code(path: PathLike) -> list[str]:
    """Files of a bundle's directory that Python could import and that are not the bundle's own.

    Also `server.py` when it is not the generated one.
    """
    path = Path(path)
    if not path.is_dir():
        return []
    found = [
        entry.relative_to(path).as_posix()
        for entry in sorted(path.rglob("*"))
        if entry.suffix in _CODE and entry.relative_to(path).as_posix() not in _OWN
    ]
    server = path / "server.py"
    return found + (["server.py"] if server.exists() and read_text(server) != _server() else [])


def _server() -> str:
    return (files("astra_mcp") / "templates" / "server.py.txt").read_text("utf-8")


def repack(path: PathLike) -> Bundle:
    """Take the digests of a directory anew, and with them write its generated files anew.

    Raises:
        BundleError: it is no directory of a bundle, or a part of it is malformed.
    """
    if not Path(path).is_dir():
        raise BundleError(f"{path} is no directory.", "A single JSON file holds no digests.")
    bundle = load_bundle(path, verify=False)
    save_dir(bundle, path, overwrite=True)
    return bundle


def _contents(bundle: Bundle) -> dict[str, bytes]:
    manifest = bundle.manifest.model_dump(mode="json", exclude_unset=True)
    tasks = [task.model_dump(mode="json", exclude_unset=True) for task in bundle.sealed.tasks]
    lines = [{"canary": bundle.sealed.canary}, *tasks]
    digests = {
        "digest": bundle.digest,
        "world_digest": bundle.world_digest,
        "tasks_digest": bundle.tasks_digest,
        **part_digests(bundle.code, bundle.state),
    }
    texts = {
        HEAD: pretty({"format": bundle.format, "digests": digests, "manifest": manifest}),
        CODE: bundle.code,
        TASKS: "".join(one_line(line) + "\n" for line in lines),
        "server.py": _server(),
        "README.md": readme(bundle.manifest, bundle.sealed.tasks),
        "LICENSE": licence_text(bundle.manifest),
    }
    return {name: text.encode() for name, text in texts.items()} | {
        STATE: canonical_bytes(bundle.state)
    }


def _exists(path: Path) -> BundleError:
    return BundleError(f"{path} exists.", "Choose another path, or ask for overwriting.")


def _check_target(path: Path, overwrite: bool) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise BundleError(f"{path} is no directory.", "Choose another path.")
    if not path.exists() or not any(path.iterdir()):
        return
    if not overwrite:
        raise _exists(path)
    if not (path / HEAD).is_file():
        raise BundleError(f"{path} holds something else than a bundle.", "Choose another path.")


def _keep_layout(old: Path, fresh: Path) -> None:
    """Keep the author's line breaks in a state that says the same as the new one."""
    try:
        same = canonical_bytes(parse(read_text(old / STATE), STATE)) == read_bytes(fresh / STATE)
    except BundleError:
        return  # there was none, or it could not be read: the new one is right
    if same:
        shutil.copyfile(old / STATE, fresh / STATE)


def _carry_over(old: Path, fresh: Path) -> None:
    if not old.is_dir():
        return
    for folder in (old, old / "sealed"):
        for entry in folder.iterdir() if folder.is_dir() else ():
            name = entry.relative_to(old)
            if name.as_posix() in _OWN or name.as_posix() == "sealed":
                continue
            (fresh / name).parent.mkdir(exist_ok=True)
            if entry.is_dir() and not entry.is_symlink():
                shutil.copytree(entry, fresh / name, symlinks=True)
            else:
                shutil.copy2(entry, fresh / name, follow_symlinks=False)


def _swap(fresh: Path, path: Path) -> None:
    if not path.exists():
        os.rename(fresh, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old-", dir=path.parent))
    os.rename(path, old)
    try:
        os.rename(fresh, path)
    except BaseException:
        os.rename(old, path)
        raise
    shutil.rmtree(old)
