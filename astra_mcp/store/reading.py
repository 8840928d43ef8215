"""Loading: from bytes to a checked `Bundle`, or one `BundleError` that says where and what to do.

Messages name the file, the field and what is wrong, never the value that stands there: it may be
sealed, and messages reach logs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from astra_mcp.bundle import FORMAT, Bundle, Manifest, State, world_digest
from astra_mcp.canonical import canonical_bytes, digest
from astra_mcp.errors import AstraError, BundleError
from astra_mcp.store.strict_json import decode, first_difference, parse, read_bytes, read_text
from astra_mcp.store.strict_json import one_line as to_json

Json = Any
PathLike = str | os.PathLike[str]

HEAD: Final = "bundle.json"
CODE: Final = "tools.py"
STATE: Final = "state.json"
TASKS: Final = "sealed/tasks.jsonl"
_SNIFF: Final = b'"astra-mcp/bundle@'
_HEAD_KEYS: Final = frozenset({"format", "digests", "manifest"})
_STATE: Final = TypeAdapter(State)
M = TypeVar("M", bound=BaseModel)


def load_bundle(path: PathLike, verify: bool = True) -> Bundle:
    """Load and check a bundle, a directory or a single JSON file.

    Args:
        verify: Compare a directory with its digests; only `repack` does without.

    Raises:
        BundleError: a part is missing or malformed, or is not what bundle.json's digests say.
    """
    path = Path(path)
    if not path.is_dir():
        return _bundle(_whole(read_text(path), str(path)), _Places(path, single=True))
    head = _head(path, verify)
    canary, tasks = _sealed(path)
    raw = {
        "format": head["format"],
        "manifest": head["manifest"],
        "code": read_text(path / CODE),
        "state": parse(read_text(path / STATE), str(path / STATE)),
        "sealed": {"canary": canary, "tasks": tasks},
    }
    bundle = _bundle(raw, _Places(path, single=False))
    if not verify:
        return bundle
    _verify_world(path, head["digests"], bundle.manifest, bundle.code, bundle.state)
    if bundle.tasks_digest != head["digests"].get("tasks_digest"):
        _changed(path, TASKS)
    if bundle.digest != head["digests"].get("digest"):
        _changed(path, f"{HEAD} (its digests)")
    return bundle


def load_json(source: str | bytes | Mapping[str, Json], name: str = "bundle") -> Bundle:
    """Load and check the single-file form.

    Args:
        source: Its text, its bytes, or the parsed object (which is copied).
        name: What error messages call it.

    Raises:
        BundleError: it is malformed.
    """
    if isinstance(source, Mapping):
        source = to_json(dict(source))
    text = source if isinstance(source, str) else decode(source, name)
    return _bundle(_whole(text, name), _Places(Path(name), single=True))


def load_public(path: PathLike) -> tuple[Manifest, str, State]:
    """Manifest, code and first state of a bundle; sealed/ is not opened and need not exist.

    Raises:
        BundleError: a public part is missing, malformed or changed.
    """
    path = Path(path)
    places = _Places(path, single=not path.is_dir())
    if places.single:
        raw = _whole(read_text(path), str(path))
        code = raw.get("code")
        if not isinstance(code, str):
            raise BundleError(f"{path}: code is no text.", "Put the source of the tools there.")
        manifest = _manifest(raw.get("manifest"), places)
        return manifest, code, _state(raw.get("state"), places)
    head = _head(path)
    manifest = _manifest(head["manifest"], places)
    code = read_text(path / CODE)
    state = _state(parse(read_text(path / STATE), str(path / STATE)), places)
    _verify_world(path, head["digests"], manifest, code, state)
    return manifest, code, state


def read_manifest(path: PathLike) -> Manifest:
    """The manifest alone, its digest unchecked; of a directory only bundle.json is read.

    Raises:
        BundleError: it is missing or malformed.
    """
    path = Path(path)
    return _manifest(_top(path)["manifest"], _Places(path, single=not path.is_dir()))


def read_identity(path: PathLike) -> tuple[str, str]:
    """(id, version), from as little work as possible: for catalogues of many bundles.

    Raises:
        BundleError: they are missing or no text.
    """
    path = Path(path)
    if (quick := _quick_identity(path)) is not None:
        return quick
    manifest = _top(path)["manifest"]
    found = (manifest.get("id"), manifest.get("version")) if isinstance(manifest, dict) else ()
    if len(found) != 2 or not all(isinstance(part, str) and part for part in found):
        raise BundleError(
            f"{path}: the manifest has no id and version.", "See docs for the bundle format."
        )
    return str(found[0]), str(found[1])


def _quick_identity(path: Path) -> tuple[str, str] | None:
    """`read_identity` without the strict parser, which runs at load; None for the slow way.

    A file that says its id twice gives the last one here and is refused when it is loaded.
    """
    folder = path.is_dir()
    try:
        raw = orjson.loads(read_bytes(path / HEAD if folder else path))
    except orjson.JSONDecodeError:
        return None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        return None
    if folder and not (raw.keys() == _HEAD_KEYS and isinstance(raw["digests"], dict)):
        return None
    manifest = raw.get("manifest")
    found = (manifest.get("id"), manifest.get("version")) if isinstance(manifest, dict) else ()
    if len(found) == 2 and all(type(part) is str and part for part in found):
        return str(found[0]), str(found[1])
    return None


def find_bundles(paths: Sequence[PathLike] | PathLike) -> list[Path]:
    """Every bundle at `paths`, in order, each once; a folder's come sorted by name.

    Args:
        paths: Bundle directories, single JSON files, or folders whose direct children are such.

    Raises:
        BundleError: a path does not exist or holds no bundle.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: dict[Path, Path] = {}
    for path in map(Path, given):
        for real, bundle in _at(path):
            found.setdefault(real, bundle)
    if not found:
        raise BundleError("No bundle was named.", "Give a bundle, or a folder of bundles.")
    return list(found.values())


def _at(path: Path) -> list[tuple[Path, Path]]:
    """(where it really is, how it was named) of each bundle at `path`."""
    if not path.exists():
        raise BundleError(f"{path} does not exist.", "Check the path.")
    real = path.resolve()
    if not path.is_dir() or (path / HEAD).is_file():
        return [(real, path)]
    with os.scandir(path) as entries:
        children = sorted(entries, key=lambda entry: entry.name)
    # Links are followed one by one; for all others the folder's own place is enough.
    placed = [(_place(real, child), path / child.name, child) for child in children]
    bundles = [(at, named) for at, named, child in placed if _looks_like_one(at, child)]
    if not bundles:
        raise BundleError(
            f"{path} holds no bundle.", f"A bundle is a directory with {HEAD}, or a JSON file."
        )
    return bundles


def _place(folder: Path, child: os.DirEntry[str]) -> Path:
    return (folder / child.name).resolve() if child.is_symlink() else folder / child.name


def _looks_like_one(at: Path, child: os.DirEntry[str]) -> bool:
    if child.name.startswith("."):
        return False
    if child.is_dir():
        return (at / HEAD).is_file()
    return child.name.endswith(".json") and child.is_file() and _SNIFF in read_bytes(at)


# ---- parts -----------------------------------------------------------------------------------


class _Places:
    """Turns a place in the model into file and field."""

    def __init__(self, path: Path, single: bool) -> None:
        self.path, self.single = path, single

    def __call__(self, loc: Sequence[object]) -> str:
        rest = list(loc)
        if self.single or not rest:
            return f"{self.path}: {_dotted(rest)}" if rest else str(self.path)
        files = {"manifest": HEAD, "format": HEAD, "code": CODE, "state": STATE, "sealed": TASKS}
        place = str(self.path / files.get(str(rest[0]), ""))
        if rest[:2] == ["sealed", "tasks"] and len(rest) > 2:
            return f"{place} task {int(str(rest[2])) + 1}: {_dotted(rest[3:]) or 'the task'}"
        keep = rest if rest[0] in ("manifest", "format") else rest[1:]
        return f"{place}: {_dotted(keep)}" if keep else place


def _dotted(loc: Sequence[object]) -> str:
    return ".".join(str(part) for part in loc)


def _whole(text: str, name: str) -> dict[str, Json]:
    raw = parse(text, name)
    if not isinstance(raw, dict):
        raise BundleError(f"{name} is no JSON object.", "See docs for the bundle format.")
    _check_format(raw.get("format"), name)
    return raw


def _top(path: Path) -> dict[str, Json]:
    raw = _head(path) if path.is_dir() else _whole(read_text(path), str(path))
    return {"manifest": raw.get("manifest")}


def _head(path: Path, digests: bool = True) -> dict[str, Json]:
    name = str(path / HEAD)
    raw = _whole(read_text(path / HEAD), name)
    if not digests:
        raw["digests"] = {}
    if odd := sorted(set(raw) ^ _HEAD_KEYS):
        raise BundleError(
            f"{name}: {odd[0]} is {'unknown' if odd[0] in raw else 'missing'}.",
            "It holds format, digests and manifest; `astra repack` writes the digests.",
        )
    if not isinstance(raw["digests"], dict):
        raise BundleError(f"{name}: digests is no object.", f"Run `astra repack {path}`.")
    return raw


def _check_format(found: Json, name: str) -> None:
    if found != FORMAT:
        raise BundleError(
            f"{name} is not of the format {FORMAT}.",
            "Use a bundle, or a version of astra that reads its format.",
        )


def _sealed(path: Path) -> tuple[Json, list[Json]]:
    file = path / TASKS
    if file.parent.is_symlink():
        raise BundleError(f"{file.parent} is a symbolic link.", "Put the folder itself there.")
    if not file.parent.is_dir():
        raise BundleError(
            f"{path} has no sealed part, so it can be served but not graded.",
            "Use the full bundle, or a pack made with --grader.",
        )
    lines = read_text(file).split("\n")
    rows = [parse(line, f"{file} line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    if not rows or not isinstance(rows[0], dict) or set(rows[0]) != {"canary"}:
        raise BundleError(
            f"{file} does not begin with its canary.", 'The first line is {"canary": "..."}.'
        )
    return rows[0]["canary"], rows[1:]


def canonical_state(raw: Json) -> Json:
    """The same state in canonical order and spelling (392.0 becomes 392), so that both forms of a
    bundle run alike.

    Raises:
        BundleError: a number that RFC 8785 cannot keep.
    """
    state = parse(canonical_bytes(raw).decode(), "state")
    canonical_bytes(state)  # refuses what became an integer beyond 2**53
    return state


def _bundle(raw: dict[str, Json], places: _Places) -> Bundle:
    bundle = _validated(Bundle, raw, places, ())
    for part, model in (("manifest", bundle.manifest), ("sealed", bundle.sealed)):
        _check_lossless(raw[part], model, places, (part,))
    bundle = bundle.model_copy(update={"state": _state(raw["state"], places)})
    try:
        _ = bundle.digest
    except BundleError as error:
        raise BundleError(f"{places(())}: {error.message}", error.remedy) from error
    return bundle


def _manifest(raw: Json, places: _Places) -> Manifest:
    manifest = _validated(Manifest, raw, places, ("manifest",))
    _check_lossless(raw, manifest, places, ("manifest",))
    return manifest


def _state(raw: Json, places: _Places) -> State:
    try:
        return _STATE.validate_python(canonical_state(raw), strict=True)
    except ValidationError as error:
        raise _refused(error, places, ("state",)) from error
    except BundleError as error:
        raise BundleError(f"{places(('state',))}: {error.message}", error.remedy) from error


def _validated(model: type[M], raw: Json, places: _Places, prefix: tuple[str, ...]) -> M:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise _refused(error, places, prefix) from error
    except AstraError as error:
        # Pydantic passes on what is no ValueError, so its place is lost: name the part.
        part = ("sealed",) if model is Bundle else prefix
        raise BundleError(f"{places(part)}: {error.message}", error.remedy) from error


def _refused(error: ValidationError, places: _Places, prefix: tuple[str, ...]) -> BundleError:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    first = problems[0]
    says = first["msg"].removeprefix("Value error, ").rstrip(".")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    place = places((*prefix, *first["loc"]))
    return BundleError(f"{place}: {says}{more}.", "Correct it; docs/ has the bundle format.")


def _check_lossless(raw: Json, model: BaseModel, places: _Places, prefix: tuple[str, ...]) -> None:
    kept = model.model_dump(mode="json", exclude_unset=True)
    if (where := first_difference(raw, kept)) is not None:
        place = places((*prefix, *(int(p) if p.isdigit() else p for p in where.split("."))))
        raise BundleError(
            f"{place}: it is not spelled as astra writes it.",
            "Use the JSON type of the field; a time is spelled like 2025-03-12T10:00:00Z.",
        )


# ---- digests ---------------------------------------------------------------------------------


def part_digests(code: str, state: State) -> dict[str, str]:
    """Digests of single files, only for saying which one changed."""
    return {
        "code_digest": digest(code.encode()),
        "state_digest": digest(canonical_bytes(state)),
    }


def _verify_world(
    path: Path, stated: Mapping[str, Json], manifest: Manifest, code: str, state: State
) -> None:
    if world_digest(manifest, code, state) == stated.get("world_digest"):
        return
    found = part_digests(code, state)
    files = {"code_digest": CODE, "state_digest": STATE}
    changed = [files[key] for key in files if found[key] != stated.get(key)]
    _changed(path, " and ".join(changed) or HEAD)


def _changed(path: Path, files: str) -> NoReturn:
    raise BundleError(
        f"{path}: the digests in {HEAD} were taken of other content: {files} changed.",
        f"Restore it, or accept the change with `astra check --write {path}`.",
    )
