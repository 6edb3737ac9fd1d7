"""Model files taken apart and put together, by docs/format.md and not by the package's own code."""

import hashlib
import json
import tempfile
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import save

import bmsvm


def digest_of(text, arrays):
    """Return the digest that docs/format.md describes."""
    digest = hashlib.sha256(f"{len(text)} {text}".encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def image_of(model):
    """Return the bytes of a model's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bmsvm"
        bmsvm.save(model, path)
        return path.read_bytes()


def contents_of(data):
    """Return the document and the arrays of a file's bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bmsvm"
        path.write_bytes(data)
        with safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return json.loads(file.metadata()["bmsvm"]), arrays


def signed(document, arrays):
    """Return a file with a right digest; ``document`` is JSON text or what becomes it."""
    text = document if isinstance(document, str) else json.dumps(document)
    return save(arrays, {"bmsvm": text, "sha256": digest_of(text, arrays)})
