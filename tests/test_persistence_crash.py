"""Saving is atomic: a crash, a full disk or Ctrl-C leaves the old file or none."""

import errno
import os
import signal
import stat
import subprocess
import sys

import pytest
from small_models import X, Y

from bmsvm import MSVMClassifier, checkpoint, load, persistence, save

KILLED = """
import os, runpy, signal, sys, types
sys.modules["jax"] = sys.modules["jax.numpy"] = types.ModuleType("jax")  # takes long to import
replacing = runpy.run_path(sys.argv[1])["replacing"]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] in ("fsync", "replace"):
    setattr(os, sys.argv[3], die)
with replacing(sys.argv[2]) as file:
    file.write(b"new" * 100_000)
    if sys.argv[3] == "write":
        die()
if sys.argv[3] == "end":
    die()
"""


@pytest.fixture(scope="module")
def fitted():
    return MSVMClassifier().fit(X, Y)  # no file is smaller, and none is fitted faster


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("moment", ["write", "fsync", "replace", "end"])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_killed_save_leaves_the_old_file_or_none(moment, old, tmp_path):
    path = tmp_path / "model.bmsvm"
    if old is not None:
        path.write_bytes(old)
    command = [sys.executable, "-c", KILLED, checkpoint.__file__, str(path), moment]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    expected = b"new" * 100_000 if moment == "end" else old
    assert (path.read_bytes() if path.exists() else None) == expected


def test_models_are_written_by_the_function_that_is_killed_above(fitted, monkeypatch, tmp_path):
    def refused(path):
        raise PermissionError(path)

    monkeypatch.setattr(persistence, "replacing", refused)
    with pytest.raises(PermissionError):
        save(fitted, tmp_path / "model.bmsvm")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("old", [b"old", None])
def test_a_full_disk_leaves_the_old_file(fitted, old, tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "model.bmsvm"
    if old is not None:
        path.write_bytes(old)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError) as caught:  # noqa: PT011
            save(fitted, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(path)
    assert [each.name for each in tmp_path.iterdir()] == (["model.bmsvm"] if old else [])
    assert old is None or path.read_bytes() == old


def test_an_interrupted_save_leaves_nothing_behind(fitted, monkeypatch, tmp_path):
    def interrupted(_):
        assert len(list(tmp_path.iterdir())) == 1  # the temporary file
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(fitted, tmp_path / "model.bmsvm")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="links and modes")
def test_saving_keeps_links_and_permissions(fitted, tmp_path):
    real, link = tmp_path / "real.bmsvm", tmp_path / "link.bmsvm"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    save(fitted, link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    load(real)
