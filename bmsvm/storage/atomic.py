"""Files that are replaced whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing", "sync_directory", "sync_file"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file for writing and reading, which takes the name ``path`` once it is complete.

    It is written beside ``path`` under a temporary name, and brought to the disk before it is
    renamed: whoever reads ``path``, now or after a crash, finds the old file or the new one. If
    anything is raised, the temporary file is removed and what was at ``path`` stays; a killed
    process may leave the temporary file, ``.bmsvm-*.tmp``.
    """
    target = Path(os.path.realpath(path))  # a link is kept, and what it points to replaced
    temporary = target.with_name(f".bmsvm-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            kept = "what was there is unchanged" if target.exists() else "there is no file"
            reason = f"{error.strerror or error}; nothing was saved, {kept}"
            raise OSError(error.errno, reason, os.fspath(path)) from error
        raise
    sync_directory(target.parent)


def sync_file(path: Path, flags: int = os.O_RDWR) -> None:
    """Bring what was written to a file to the disk."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Bring a renaming to the disk, where the system can."""
    with contextlib.suppress(OSError):
        sync_file(directory, os.O_RDONLY)
