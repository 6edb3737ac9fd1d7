"""Values as JSON beside arrays: they come back with their types."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load, save
from stored_runs import ALGORITHMS, GRID, X, Y, kernel

from bmsvm import (
    HMC,
    Fourier,
    Gibbs,
    Hyperparameters,
    ModeCV,
    Nystrom,
    Paper,
    Predictive,
    Sampled,
    SquaresCV,
    Table,
    kernels,
)
from bmsvm._encoding import NUMBERS, SETTINGS, STRUCTURES, decode, encode
from bmsvm.inference import Blocks, Sampler
from bmsvm.inference.run import start_chains
from bmsvm.kernels import Approximation, Kernel
from bmsvm.machines import Grid
from bmsvm.persistence import ModelFileError
from bmsvm.selection import Method


def after_json(value):
    """Encode, write as JSON and safetensors, read and decode."""
    arrays = {}
    text = encode(value, "value", arrays)
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


SOME_SETTINGS = [
    HMC(thinning=3),
    Gibbs(),
    Paper(thinning=np.int64(4), step_size=0.5, printed_ratio=True),
    Sampled("log-uniform", bounds=[0.5, 9], grid="off"),
    Sampled(grid=np.geomspace(1, 4, 3)),
    Sampled(per_feature=True, every=3),
    ModeCV(grid=[1.0, 2.0], precisions=np.array([0.1, 1.0]), repeats=2),
    ModeCV(max_rows=None),
    Table(),
    SquaresCV(max_rows=200),
    Grid(gamma=[0.1, 1.0], lengthscale=np.ones(2), folds=3),
    Nystrom(rank=7, tolerance=0.1, dtype="float32", seed=3),
    Fourier(rank=8),
    Predictive(calibrate=np.False_, remainder=False, decision="exclusion"),
    Hyperparameters(noise_shape=3, noise_rate=np.float32(10.0)),
    kernels.Gaussian(),
    kernels.Laplacian(),
    kernels.Matern32(),
    kernels.Matern52(),
    kernels.Linear(),
    kernels.Polynomial(degree=2, scale=3, offset=np.float64(0.5)),
    kernels.Precomputed(),
]


@pytest.mark.parametrize("value", SOME_SETTINGS, ids=lambda value: type(value).__name__)
def test_every_object_that_is_a_parameter_survives(value):
    found = after_json(value)
    assert type(found) is type(value)
    np.testing.assert_equal(vars(found), vars(value))
    for name, part in vars(value).items():
        assert type(getattr(found, name)) is type(part)


def test_only_objects_that_hold_callables_are_left_out():
    def below(base):
        return {base, *(each for sub in base.__subclasses__() for each in below(sub))}

    bases = {Sampler, Kernel, kernels.Stationary, Approximation, Method}
    code = {Blocks, kernels.Function, kernels.Parametric}
    known = {each for base in bases for each in below(base) if each.__module__.startswith("bmsvm.")}
    assert known - bases - code <= set(SETTINGS)
    assert {type(value) for value in SOME_SETTINGS} == {*SETTINGS, Hyperparameters}
    assert not code & set(STRUCTURES.values())


LARGEST = "hmc, low rank, theta on a grid"
"""Its state has the structures of the other one of low rank too."""


@pytest.mark.parametrize(
    "name",
    [
        "per feature",
        "independent",
        LARGEST,
        *(pytest.param(name, marks=pytest.mark.long) for name in ALGORITHMS if name != LARGEST),
    ],
)
def test_the_state_of_every_algorithm_survives(name):
    """To JAX it is the same, so that nothing is compiled anew."""
    others = {
        "per feature": {"sampler": "hmc", "lengthscale": Sampled("log-uniform", per_feature=True)},
        "independent": {"sampler": "hmc", "lengthscale": GRID, "coupling": "independent"},
    }
    with jax.enable_x64(True):
        sampler = kernel(**{**others, **ALGORITHMS}[name])
        problem = sampler.prepare(X, Y)
        state = start_chains(sampler, jax.random.key(0), problem, num_chains=2, num_warmup=5)
    found = after_json(state)
    assert jax.tree.structure(found) == jax.tree.structure(state)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True):
        assert jax.typeof(one) == jax.typeof(other)
        assert bool((one == other).all())


def test_nan_keys_and_strings_of_any_shape_survive():
    assert np.isnan(after_json(float("nan")))
    key = jax.random.key(3, impl="rbg")
    assert after_json(key) == key
    assert after_json(key).dtype == key.dtype
    for text in (np.array("one"), np.array([["a", "bc"], ["", "d"]]), np.empty((2, 0), "U3")):
        found = after_json(text)
        assert (found.shape, found.dtype, found.tolist()) == (text.shape, text.dtype, text.tolist())


def test_a_short_file_cannot_ask_for_many_copies():
    with pytest.raises(ModelFileError, match="'v' is missing, used twice"):
        decode([{"array": "v"}, {"array": "v"}], {"v": np.zeros(10)})


@pytest.mark.parametrize("kind", ["array", "jax"])
def test_tensors_that_are_not_of_numbers_are_refused(kind):
    with pytest.raises(ModelFileError, match=r"'v' is .* not of numbers"):
        decode({kind: "v"}, {"v": np.zeros(3, complex)})


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


@pytest.mark.parametrize(
    ("name", "fields", "wrong"),
    [
        ("Gibbs", {"thinning": 0}, "thinning"),
        ("Polynomial", {"degree": 2, "scale": 1, "offset": "one"}, "offset"),
        ("Sampled", {**vars(Sampled()), "bounds": [2.0, 1.0]}, "bounds"),
    ],
)
def test_settings_check_what_a_file_says(name, fields, wrong):
    """Load makes a ModelFileError of any error."""
    with pytest.raises(ValueError, match=wrong):
        decode({"structure": name, "fields": fields}, {})
