"""Chains on disk while they run: draws in a Zarr group, and where the chains stand beside it.

A store is a directory with two things in it. ``draws.zarr`` has an array (chain, draw, ...) for
each site, to which pieces are appended. ``chains.nc`` is one file, replaced whole or not at all,
that says how many sweeps and draws are complete and holds the state of the chains after the last
of them. It is written when the piece is on the disk: what is in ``draws.zarr`` beyond what it
counts does not exist, and is overwritten. docs/format.md has more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from bmsvm.storage.atomic import sync_directory, sync_file
from bmsvm.storage.chain_state import decode_state, encode_state
from bmsvm.storage.document import (
    DIMENSIONS,
    Kind,
    attributes_of,
    read_document,
    variables_of,
    write_document,
)
from bmsvm.storage.encoding import Decoder, Encoder

if TYPE_CHECKING:
    from bmsvm.inference.gibbs import BMSVMState

try:
    import fcntl
except ImportError:  # Windows has no such locks; stores are not guarded there
    fcntl = None  # type: ignore[assignment]

__all__ = ["PIECE", "ChainStore", "Progress", "StoredDraws", "digest_of_arrays"]

KIND = Kind("bmsvm chains", "the record of a store of chains", 1)
PIECE = 50
"""Draws that are appended at a time, and that a chunk has."""

RECORD, DRAWS, LOCK = "chains.nc", "draws.zarr", ".lock"

CHUNK_BYTES = 2**25
"""A chunk has the draws of a piece, and is split along its rows to be no larger than about this."""

CHOSEN_BY_HASH = {"data": "other data", "start": "another rng_key, init_params or tuned"}
"""What it means that a part of a fingerprint that nobody can read differs."""


class Progress(NamedTuple):
    """What of a run is complete.

    warmup
        Sweeps of warm-up.
    draws
        Draws of each chain.
    seconds
        Time they took.
    """

    warmup: int = 0
    draws: int = 0
    seconds: float = 0.0


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError(
            "store needs zarr, which is not installed: pip install 'bmsvm[store]'"
        ) from error
    return zarr


def digest_of_arrays(tree: Any) -> str:
    """SHA-256 of the types, shapes and bytes of the arrays of a pytree."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            raise ValueError("store needs chains whose arrays are all in this process")
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.ascontiguousarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class StoredDraws(Mapping[str, np.ndarray]):
    """Draws of each site, shape (chain, draw, ...), read from the disk when they are asked for.

    ``arrays`` are the Zarr arrays themselves, for reading some of the draws.
    """

    def __init__(self, path: Path, sites: tuple[str, ...], num_samples: int) -> None:
        self.path, self.sites, self.num_samples = path, sites, num_samples

    @property
    def arrays(self) -> dict[str, Any]:
        """The Zarr arrays by site; of their draws the first ``num_samples`` count."""
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


class ChainStore:
    """A directory that keeps the draws of one run, and all that is needed to go on with it.

    Parameters
    ----------
    path
        The directory. It is made if it is not there.
    fingerprint
        What makes the draws what they are: names and values that JSON has. A store of a run with
        another fingerprint is refused.
    sites
        Names of what is drawn.
    """

    def __init__(
        self, path: str | os.PathLike[str], fingerprint: dict[str, Any], sites: tuple[str, ...]
    ) -> None:
        _zarr()
        self.path = Path(path)
        self.fingerprint = fingerprint
        self.sites = sites
        self.progress = Progress()
        self._began = 0.0

    @contextlib.contextmanager
    def opened(self) -> Iterator[ChainStore]:
        """Make the directory, and keep other processes out of it."""
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

    def begin(self, state: BMSVMState) -> BMSVMState:
        """Return where the chains stand: what was stored, or the given start, which is stored."""
        if (self.path / RECORD).exists():
            _remove_leftovers(self.path)
            return self.last(state)
        foreign = [
            entry.name
            for entry in self.path.iterdir()
            if entry.name != LOCK and not entry.name.startswith(".bmsvm-")
        ]
        if foreign:
            raise ValueError(
                f"store must be a directory that is empty or that a run has made; "
                f"{os.fspath(self.path)!r} has {min(foreign)!r} and no {RECORD!r}"
            )
        self.progress = Progress()
        self._record(state, self.progress)
        return state

    def last(self, like: BMSVMState) -> BMSVMState:
        """Read where the chains stood after the last complete piece."""

        def build(document: dict[str, Any], decoder: Decoder) -> tuple[Any, Progress, Any]:
            leaves = {name: decoder.decode(value) for name, value in document["state"].items()}
            return document["fingerprint"], Progress(**document["progress"]), leaves

        stored, progress, leaves = read_document(self.path / RECORD, KIND, build)
        self._check(stored)
        self.progress = progress
        return decode_state(leaves, like, like.problem)

    def commit(self, state: BMSVMState, warmup: int, piece: dict[str, np.ndarray]) -> None:
        """Append a piece of draws, shape (chain, count, ...) each, and the state after it.

        Either all of it counts afterwards, or nothing.
        """
        before = self.progress
        count = next(iter(piece.values())).shape[1] if piece else 0
        now = time.perf_counter()
        after = Progress(
            before.warmup + warmup, before.draws + count, before.seconds + now - self._began
        )
        try:
            if piece:
                self._append(piece, before.draws)
            self._record(state, after)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror or error}. {before.warmup} sweeps of warm-up and {before.draws} "
                "draws are complete in the store, and the same call goes on from them",
                os.fspath(self.path),
            ) from error
        self.progress, self._began = after, now

    def draws(self) -> StoredDraws:
        """Return the draws that are complete."""
        return StoredDraws(self.path / DRAWS, self.sites, self.progress.draws)

    def _check(self, stored: dict[str, Any]) -> None:
        for name, ours in self.fingerprint.items():
            theirs = stored.get(name)
            if theirs == ours:
                continue
            told = CHOSEN_BY_HASH.get(name, f"{name}={theirs!r}, and this one has {ours!r}")
            raise ValueError(
                f"store {os.fspath(self.path)!r} holds a run with {told}: give another store"
            )

    def _record(self, state: BMSVMState, progress: Progress) -> None:
        encoder = Encoder()
        document = {
            "fingerprint": self.fingerprint,
            "progress": progress._asdict(),
            "state": encode_state(state, encoder),
        }
        write_document(
            self.path / RECORD, attributes_of(KIND, document), variables_of(encoder.arrays)
        )

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
                    dimension_names=_dimensions(name, values.ndim),
                )
            array, end = group[name], start + count
            array.resize((chains, end, *rest))
            array[:, start:end] = values
            directory = self.path / DRAWS / name
            sync_file(directory / "zarr.json")
            sync_directory(directory)
            for chunk in range(start // PIECE, -(-end // PIECE)):
                _sync_below(directory / "c" / "0" / str(chunk))
            sync_directory(directory / "c" / "0")


def _chunks(values: np.ndarray) -> tuple[int, ...]:
    """Shape of a chunk: of all chains and some draws, and of some rows where those are many."""
    chains, _, *rest = values.shape
    if not rest:
        return chains, PIECE
    row = values.dtype.itemsize * chains * PIECE * int(np.prod(rest[1:]))
    return chains, PIECE, max(1, min(rest[0], CHUNK_BYTES // max(row, 1))), *rest[1:]


def _dimensions(name: str, ndim: int) -> tuple[str, ...]:
    known = DIMENSIONS.get(f"draws_{name}", ())
    if len(known) == ndim:
        return known
    return ("chain", "draw", *(f"{name}_{i}" for i in range(ndim - 2)))


def _sync_below(path: Path) -> None:
    """Bring a file, or all files of a directory, to the disk."""
    if path.is_dir():
        for entry in path.iterdir():
            _sync_below(entry)
        sync_directory(path)
    elif path.exists():
        sync_file(path)


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files of a run that was killed."""
    for pattern in (".bmsvm-*.tmp", f"{DRAWS}/**/*.partial"):
        for leftover in path.glob(pattern):
            leftover.unlink(missing_ok=True)
