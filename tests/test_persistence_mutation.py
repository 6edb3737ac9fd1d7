"""Damaged model files are refused with one exception, and neither hang nor fill the memory."""

import contextlib
import json
import os
import random
import signal

import numpy as np
import pytest
from model_files import contents_of, image_of, signed
from safetensors import SafetensorError
from small_models import fit

from bmsvm import load
from bmsvm.persistence import ModelFileError

MUTATIONS = int(os.environ.get("BMSVM_MUTATIONS", "300"))
"""Damaged files to try; BMSVM_MUTATIONS=10000 for a thorough run."""


@pytest.fixture(scope="module")
def fitted():
    return fit()


@pytest.fixture(scope="module")
def image(fitted):
    return image_of(fitted)


def load_bytes(data, tmp_path):
    path = tmp_path / "model.bmsvm"
    path.write_bytes(data)
    return load(path)


def header_size(data):
    return 8 + int.from_bytes(data[:8], "little")


def _mutated(data, chance, end):
    """Damage a file somewhere: every other time before ``end``."""
    data = bytearray(data)
    end = end if chance.random() < 0.5 else len(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(end)
        match chance.randrange(6):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.randrange(256)
            case 2:
                del data[at : at + chance.randrange(1, 64)]
            case 3:
                data[at:at] = chance.randbytes(chance.randrange(1, 64))
            case 4:
                del data[chance.randrange(len(data)) :]
            case 5:
                data[at : at + 4] = chance.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4))
                )
        end = min(end, len(data) - 1)
        if end < 1:
            break
    return bytes(data)


def _resigned(data):
    """Return a file with its digest made right, or None where there is nothing left to sign."""
    with contextlib.suppress(SafetensorError, KeyError, ValueError, TypeError, RecursionError):
        return signed(*contents_of(data))
    return None


def test_a_flipped_bit_is_noticed(image, tmp_path):
    for at in (-5, header_size(image), header_size(image) // 2):
        data = bytearray(image)
        data[at] ^= 1
        with pytest.raises(ModelFileError):
            load_bytes(bytes(data), tmp_path)


def test_damaged_files_raise_one_exception_and_no_other(image, tmp_path):
    """Or, where only the padding of the header was hit, hold the same content."""
    end, same = header_size(image), 0
    document, arrays = contents_of(image)
    for number in range(MUTATIONS):
        data = _mutated(image, random.Random(number), end)
        if data == image:
            continue
        try:
            load_bytes(data, tmp_path)
        except ModelFileError:
            continue
        same += 1
        assert contents_of(data)[0] == document
        for name, array in contents_of(data)[1].items():
            np.testing.assert_array_equal(array, arrays[name])
    assert same <= MUTATIONS // 1000


def test_damaged_files_with_a_right_digest_load_or_raise_that_exception(image, tmp_path):
    document, arrays = contents_of(image)
    text = json.dumps(document)
    refused = 0
    for number in range(MUTATIONS):
        chance = random.Random(number)
        if number % 2:
            damaged = _mutated(text.encode(), chance, len(text)).decode("ascii", "replace")
            data = signed(damaged.replace("\ufffd", "?").replace("\0", "0"), arrays)
        else:
            data = _resigned(_mutated(image, chance, header_size(image)))
        try:
            if data is not None:
                load_bytes(data, tmp_path)
                continue
        except ModelFileError:
            pass
        refused += 1
    assert refused > MUTATIONS // 3


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs alarms and resource limits")
def test_ten_thousand_damaged_files_neither_hang_nor_fill_memory(image, tmp_path):
    """Half of them with their digest made right; a minute for one file is a hang."""
    import resource

    def hangs(*_):
        pytest.fail(f"file {number} takes more than a minute")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    previous = signal.signal(signal.SIGALRM, hangs)
    try:
        for number in range(10_000):
            data = _mutated(image, random.Random(10**6 + number), len(image))
            if number % 2:
                data = _resigned(data) or data
            signal.alarm(60)
            with contextlib.suppress(ModelFileError):
                load_bytes(data, tmp_path)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 100, f"memory grew by {grown:.0f} MB over files of {len(image)} bytes"
