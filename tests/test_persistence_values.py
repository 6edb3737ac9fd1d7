"""Values as JSON beside arrays: they come back with their types."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load, save

from bmsvm import Hyperparameters
from bmsvm.persistence import NUMBERS, ModelFileError, decode, encode


def after_json(value):
    """Encode, write as JSON and safetensors, read and decode."""
    text, arrays = encode(value)
    return decode(json.loads(json.dumps(text, allow_nan=False)), load(save(arrays)))


@pytest.mark.parametrize("dtype", sorted(NUMBERS))
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 2)])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_type_of_array_survives(dtype, shape, order):
    raw = np.random.default_rng(0).bytes(8 * 15)
    values = np.frombuffer(raw, "u1") if dtype == "bool" else np.frombuffer(raw, dtype)
    values = np.resize(values, shape).astype(np.dtype(dtype).newbyteorder(order))
    found = after_json(values)
    assert found.dtype == np.dtype(dtype)
    assert found.shape == shape
    assert found.tobytes() == values.astype(dtype).tobytes()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        2**70,
        0.1,
        float("inf"),
        "text\ud800",
        [1, "a", [None]],
        (1, (2.5,)),
        {"a": 1, 2: (3,), None: []},
        np.float32(0.1),
        np.int64(-1),
        Hyperparameters(noise_rate=3.0),
    ],
    ids=ascii,
)
def test_settings_survive_with_their_types(value):
    found = after_json(value)
    assert type(found) is type(value)
    assert found == value


def test_nan_keys_and_strings_of_any_shape_survive():
    assert np.isnan(after_json(float("nan")))
    key = jax.random.key(3, impl="rbg")
    assert after_json(key) == key
    assert after_json(key).dtype == key.dtype
    for text in (np.array("one"), np.array([["a", "bc"], ["", "d"]]), np.empty((2, 0), "U3")):
        found = after_json(text)
        assert (found.shape, found.dtype, found.tolist()) == (text.shape, text.dtype, text.tolist())


def test_a_short_file_cannot_ask_for_many_copies():
    with pytest.raises(ModelFileError, match="'v'"):
        decode([{"array": "v"}, {"array": "v"}], {"v": np.zeros(10)})


def test_arrays_that_belong_to_nothing_are_refused():
    with pytest.raises(ModelFileError, match="stray"):
        decode([], {"stray": np.zeros(10)})


@pytest.mark.parametrize(
    "value",
    [
        {"unknown": 1},
        {"array": "v", "dtype": "object"},
        {"array": "v", "dtype": "float64"},
        {"scalar": "1", "dtype": "float64"},
        {"scalar": 1, "dtype": "object"},
        {"number": "1"},
        {"float": "1.0"},
        {"key": "v", "kind": "other"},
        {"text": "v"},
        {"structure": "eval", "fields": {}},
        {"structure": "Hyperparameters", "fields": {"noise_rate": 1.0}},
    ],
    ids=str,
)
def test_what_no_value_encodes_to_is_refused(value):
    with pytest.raises(ModelFileError):
        decode(value, {"v": np.zeros(3)})
