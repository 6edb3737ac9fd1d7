"""Checkpoints: the draws and the state of chains, written to disk while the chains run.

A checkpoint is a directory. ``draws.zarr`` is a Zarr group with one array (chain, draw, ...) per
site, to which each piece of draws is appended. ``chains.npz`` is the record: the settings of the
run, the number of complete sweeps and draws, and the state of the chains after the last of them.
The record is replaced atomically, after its piece has reached the disk. Draws in ``draws.zarr``
beyond the number in the record do not count, and the next run overwrites them. See docs/format.md.

This module imports nothing of bmsvm. A state is any pytree of arrays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm._arrays import is_key

try:
    import fcntl
except ImportError:  # Windows has no flock: checkpoints are not locked there
    fcntl = None  # type: ignore[assignment]

FORMAT, FORMAT_VERSION = "bmsvm chains", 3
RECORD, DRAWS, LOCK, TEMPORARY = "chains.npz", "draws.zarr", ".lock", ".bmsvm-"

CHUNK = 25
"""Draws that are appended at a time, and draws per chunk."""

CHUNK_BYTES = 2**25
"""Approximate upper bound of the size of a chunk; larger ones are split along their rows."""

AXES = {"intercept": ("class",), "scores": ("row", "class"), "weights": ("basis", "column")}
"""Names of the axes of a site, after chain and draw."""

HASHED = {
    "data": "other rows, labels, kernel or lengthscale",
    "start": "another rng_key or init_params",
}
"""What a difference means in those parts of a fingerprint that are hashes."""

State = TypeVar("State")


class ModelFileError(ValueError):
    """A file that bmsvm cannot load: foreign, truncated, damaged, or of another format version."""


# Atomic files --------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file for writing, which takes the name ``path`` once it is complete.

    It is written in the same directory under a temporary name, synced to the disk and renamed.
    A reader of ``path``, now or after a crash, finds the old file or the new one. If anything is
    raised, the temporary file is removed and the old file stays. A killed process may leave the
    temporary file, ``.bmsvm-*.tmp``.
    """
    target = Path(os.path.realpath(path))  # a link stays, and the file it points to is replaced
    temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}.tmp")
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
            kept = "the existing file is unchanged" if target.exists() else "there is no file"
            reason = f"{error.strerror or error}; nothing was saved, {kept}"
            raise OSError(error.errno, reason, os.fspath(path)) from error
        raise
    _sync(target.parent)


def _sync(path: Path) -> None:
    """Sync a file, or the names in a directory, to the disk; directories where the system can."""
    is_directory = path.is_dir()
    with contextlib.suppress(OSError) if is_directory else contextlib.nullcontext():
        descriptor = os.open(path, os.O_RDONLY if is_directory else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Pytrees of arrays ---------------------------------------------------------------------------


def _leaves(tree: Any) -> dict[str, Any]:
    """Return the leaves of a pytree by their path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _to_numpy(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        raise ValueError("store needs chains whose arrays are all in this process")
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def _from_numpy(name: str, array: np.ndarray, like: Any) -> Any:
    """Return an array as a leaf of the same type as ``like``."""
    expected = _to_numpy(like)
    if (array.shape, array.dtype) != (expected.shape, expected.dtype):
        raise ModelFileError(f"the stored state does not fit the data: {name[1:]}")
    if isinstance(like, jax.Array) and like.aval.weak_type and like.ndim == 0:
        return jnp.asarray(array.item())  # a Python number to JAX, whose programs depend on that
    with jax.enable_x64(True):
        leaf = jnp.asarray(array)
        if is_key(like):
            leaf = jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like))
        return leaf


def digest_of_arrays(tree: Any) -> str:
    """SHA-256 of the paths, types, shapes and bytes of the arrays of a pytree."""
    digest = hashlib.sha256()
    for name, leaf in _leaves(tree).items():
        array = np.ascontiguousarray(_to_numpy(leaf))
        digest.update(f"{name} {getattr(leaf, 'dtype', '')} {array.dtype} {array.shape};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


# Checkpoints ---------------------------------------------------------------------------------


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError(
            "store needs zarr, which is not installed: pip install 'bmsvm[store]'"
        ) from error
    return zarr


class Progress(NamedTuple):
    """The complete part of a run: warm-up sweeps, draws of each chain, and the time they took."""

    warmup: int = 0
    draws: int = 0
    seconds: float = 0.0


class StoredDraws(Mapping[str, np.ndarray]):
    """Draws of each site, shape (chain, draw, ...), read from the disk on access.

    ``arrays`` are the Zarr arrays themselves, for reading part of the draws.
    """

    def __init__(self, path: Path, sites: tuple[str, ...], num_samples: int) -> None:
        self.path, self.sites, self.num_samples = path, sites, num_samples

    @property
    def arrays(self) -> dict[str, Any]:
        """The Zarr arrays by site; only their first ``num_samples`` draws count."""
        group = _zarr().open_group(self.path, mode="r")
        return {name: group[name] for name in self.sites}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.sites:
            raise KeyError(name)
        return np.asarray(self.arrays[name][:, : self.num_samples])

    def __iter__(self) -> Iterator[str]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)


class Checkpoint:
    """A directory with the draws of one run and the state to resume it from.

    Parameters
    ----------
    path
        The directory. It is created if it does not exist.
    fingerprint
        What determines the draws: names and JSON values. A checkpoint with another fingerprint is
        refused.
    sites
        Names of the sites that are drawn.
    """

    def __init__(
        self, path: str | os.PathLike[str], fingerprint: dict[str, Any], sites: tuple[str, ...]
    ) -> None:
        _zarr()
        self.path, self.fingerprint, self.sites = Path(path), fingerprint, sites
        self.progress = Progress()
        self._began = 0.0

    @contextlib.contextmanager
    def opened(self) -> Iterator[Checkpoint]:
        """Create the directory, and lock it against other processes."""
        self._began = time.perf_counter()
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"store must be a directory; {os.fspath(self.path)!r} is a file")
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / LOCK, "ab") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ValueError(
                        f"store {os.fspath(self.path)!r} is in use by another run: wait for it, "
                        "or give another store"
                    ) from None
            yield self

    def begin(self, state: State) -> State:
        """Return the stored state of the chains; a new checkpoint stores the given one."""
        if (self.path / RECORD).exists():
            for pattern in (f"{TEMPORARY}*.tmp", f"{DRAWS}/**/*.partial"):  # of a killed run
                for leftover in self.path.glob(pattern):
                    leftover.unlink(missing_ok=True)
            return self.last(state)
        foreign = [
            entry.name
            for entry in self.path.iterdir()
            if entry.name != LOCK and not entry.name.startswith(TEMPORARY)
        ]
        if foreign:
            raise ValueError(
                f"store must be an empty directory or the store of a run; "
                f"{os.fspath(self.path)!r} has {min(foreign)!r} and no {RECORD!r}"
            )
        self.progress = Progress()
        self._write_record(state, self.progress)
        return state

    def last(self, like: State) -> State:
        """Return the state after the last complete piece; ``like`` has its structure."""
        path = os.fspath(self.path / RECORD)
        try:
            record, arrays = _read_record(path)
            fingerprint, progress = record["fingerprint"], Progress(**record["progress"])
        except OSError:
            raise
        except Exception as error:  # a damaged file can raise anything
            raise ModelFileError(f"cannot load {path!r}: {error}") from error
        for name, ours in self.fingerprint.items():
            if (theirs := fingerprint.get(name)) != ours:
                told = HASHED.get(name, f"{name}={theirs!r}, and this one has {ours!r}")
                raise ValueError(
                    f"store {os.fspath(self.path)!r} holds a run with {told}: give another store"
                )
        expected = _leaves(like)
        if arrays.keys() != expected.keys():
            raise ModelFileError(f"cannot load {path!r}: its chains are of another sampler")
        leaves = [_from_numpy(name, arrays[name], leaf) for name, leaf in expected.items()]
        self.progress = progress
        return jax.tree.unflatten(jax.tree.structure(like), leaves)

    def commit(self, state: Any, warmup: int, piece: dict[str, np.ndarray]) -> None:
        """Append a piece of draws, shape (chain, count, ...) each, and the state after it.

        Afterwards either all of it counts or nothing.
        """
        before, now = self.progress, time.perf_counter()
        count = next(iter(piece.values())).shape[1] if piece else 0
        seconds = before.seconds + now - self._began
        after = Progress(before.warmup + warmup, before.draws + count, seconds)
        try:
            if piece:
                self._append(piece, before.draws)
            self._write_record(state, after)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror or error}. The store has {before.warmup} complete warm-up sweeps "
                f"and {before.draws} complete draws; the same call resumes from them",
                os.fspath(self.path),
            ) from error
        self.progress, self._began = after, now

    def draws(self) -> StoredDraws:
        """Return the complete draws."""
        return StoredDraws(self.path / DRAWS, self.sites, self.progress.draws)

    def _write_record(self, state: Any, progress: Progress) -> None:
        record = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "fingerprint": self.fingerprint,
            "progress": progress._asdict(),
        }
        arrays = {name: _to_numpy(leaf) for name, leaf in _leaves(state).items()}
        with replacing(self.path / RECORD) as file:
            np.savez(file, record=json.dumps(record), **arrays)  # type: ignore[arg-type]

    def _append(self, piece: dict[str, np.ndarray], start: int) -> None:
        group = _zarr().open_group(self.path / DRAWS, mode="a")
        for name, values in piece.items():
            chains, count, *rest = values.shape
            if name not in group:
                group.create_array(
                    name,
                    shape=(chains, 0, *rest),
                    chunks=_chunks(values),
                    dtype=values.dtype,
                    dimension_names=_dimensions(name, len(rest)),
                )
            array, end = group[name], start + count
            array.resize((chains, end, *rest))
            array[:, start:end] = values
            folder = self.path / DRAWS / name
            chunks = [folder / "c/0" / str(i) for i in range(start // CHUNK, -(-end // CHUNK))]
            below = [entry for chunk in chunks for entry in chunk.rglob("*")]
            above = (folder / "c/0", folder / "c", folder / "zarr.json", folder)
            for entry in (*below, *chunks, *above):
                if entry.exists():  # Zarr does not write chunks of zeros
                    _sync(entry)
        _sync(self.path / DRAWS)


def _read_record(path: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the document and the arrays of a record; its zip file has checksums of both."""
    with np.load(path, allow_pickle=False) as file:
        record = json.loads(str(file["record"]))
        found = (record["format"], record["format_version"])
        if found != (FORMAT, FORMAT_VERSION):
            raise ModelFileError(f"it is {found}; this bmsvm reads {(FORMAT, FORMAT_VERSION)}")
        return record, {name: file[name] for name in file.files if name != "record"}


def _chunks(values: np.ndarray) -> tuple[int, ...]:
    """Shape of a chunk: all chains, a piece of draws, and as many rows as CHUNK_BYTES allow."""
    chains, _, *rest = values.shape
    if not rest:
        return chains, CHUNK
    row = values.dtype.itemsize * chains * CHUNK * int(np.prod(rest[1:]))
    return chains, CHUNK, max(1, min(rest[0], CHUNK_BYTES // max(row, 1))), *rest[1:]


def _dimensions(name: str, rank: int) -> tuple[str, ...]:
    known = AXES.get(name, ())
    return (
        "chain",
        "draw",
        *(known if len(known) == rank else (f"{name}_{i}" for i in range(rank))),
    )
