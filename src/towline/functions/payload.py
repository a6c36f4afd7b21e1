"""What travels with a job besides its folder: our side of a call, cloudpickle, and the call.

It lies in a folder of its own below the one that travels, which git ignores, from shortly before
the submission to shortly after it: the job has its copy by then.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import zipfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from towline.errors import UsageError
from towline.functions.remote.wire import KEY_BYTES, KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROGRAM = "call.pyz"
PLACE = ".towline"
_TRIES = 10


class Payload:
    """A folder that travels with one submission."""

    def __init__(self, folder: Path, name: str, key: bytes) -> None:
        self.folder = folder
        self.name = name
        self.key = key

    @property
    def inside(self) -> str:
        """Where it is in the job's folder."""
        return f"{PLACE}/{self.name}"

    def added_to(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a submission, with those by which it and its key travel along."""
        return {
            **options,
            # By its name, although git ignores it.
            "include": [*options.get("include", ()), self.name],
            "env": {**options.get("env", {}), KEY_VARIABLE: self.key.hex()},
        }

    def command(self, module: str, python: str, number: int = 0) -> list[str]:
        """What starts a module of ours there; without a `python`, in the one most like ours."""
        wanted = "{}.{}".format(*sys.version_info[:2])
        program = f"{self.inside}/{PROGRAM}"
        theirs = "" if python else sys.executable
        return [python or "python3", "-u", program, module, wanted, theirs, str(number)]


@contextmanager
def payload(folder: Path, files: Mapping[str, bytes], program: bytes) -> Iterator[Payload]:
    """Put files beside what travels, for as long as it takes to submit it."""
    name, key = f"call-{os.urandom(8).hex()}", os.urandom(KEY_BYTES)
    place = folder / PLACE / name
    try:
        _make(place)
        everything = {PROGRAM: program, "paths": _paths(folder), ".gitignore": b"*\n"}
        everything |= files
        for path, data in everything.items():
            with open(
                os.open(place / path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb"
            ) as f:
                f.write(data)
        yield Payload(folder, name, key)
    except OSError as error:
        if Path(error.filename or "") not in (place, *place.parents[:2]):
            raise
        raise UsageError(
            f"cannot write into {folder}: {error.strerror}",
            "what a function needs travels from there; name another folder with folder=",
        ) from None
    finally:
        shutil.rmtree(place, ignore_errors=True)
        # Another submission may have its own in there.
        try:
            place.parent.rmdir()
        except OSError:
            pass


def _paths(folder: Path) -> bytes:
    """Where Python looks for modules, as far as that travels."""
    inside = [
        os.fsencode(path.relative_to(folder))
        for path in map(Path, sys.path)
        if path.is_relative_to(folder) and path.is_dir() and "site-packages" not in path.parts
    ]
    return b"\0".join(dict.fromkeys([b"", *inside]))


def _make(place: Path) -> None:
    """Make the folder, also while another submission removes the one around it."""
    for left in reversed(range(_TRIES)):
        try:
            place.parent.mkdir(exist_ok=True)
            place.mkdir(mode=0o700)
            return
        except FileNotFoundError:
            if not left:
                raise


@cache
def program_for_calls() -> bytes:
    """Our side of a call and cloudpickle, as one file that any Python of this version runs."""
    return program_with({})


def program_with(packages: Mapping[str, Path]) -> bytes:
    """The same, with more packages in it."""
    ours = {
        "towline_remote": Path(__file__).parent / "remote",
        "cloudpickle": Path(cloudpickle.__file__).parent,
    }
    return zipped({**ours, **packages}, ours["towline_remote"] / "__main__.py")


def zipped(packages: Mapping[str, Path], main: Path) -> bytes:
    """Packages and modules as one file; the same bytes whenever they are the same: it travels."""
    sources = {
        f"{name}/{path.relative_to(place)}" if place.is_dir() else f"{name}.py": path.read_bytes()
        for name, place in packages.items()
        for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"__main__.py": main.read_bytes(), **sources}.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return made.getvalue()
