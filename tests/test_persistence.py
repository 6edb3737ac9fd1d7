"""Saved models: the same after loading, whole after a crash, and harmless from strangers."""

import contextlib
import copy
import dataclasses
import errno
import io
import json
import os
import pickle
import random
import signal
import stat
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.io
import xarray
from sklearn.exceptions import NotFittedError
from small_models import NEW, SMALL, X, Y, fit, renamed

import bmsvm
from bmsvm import BMSVMClassifier, Hyperparameters, kernels, load
from bmsvm.inference.cross_validation import CrossValidation
from bmsvm.inference.evidence import EvidenceMaximum
from bmsvm.persistence import FORMAT_VERSION, ModelFileError, model_file
from bmsvm.storage import atomic, document, netcdf3
from bmsvm.storage.encoding import STORAGE, Decoder, Encoder

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

MUTATIONS = int(os.environ.get("BMSVM_MUTATIONS", "300"))
"""Damaged files to try; BMSVM_MUTATIONS=10000 for a thorough run."""


@pytest.fixture(scope="module")
def fitted():
    return fit()


@pytest.fixture(scope="module")
def contents(fitted):
    return model_file._contents(fitted)


@pytest.fixture(scope="module")
def image(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.nc"
    fitted.save(path)
    return path.read_bytes()


def assert_same_model(one, other):
    np.testing.assert_array_equal(one.predict_proba(NEW), other.predict_proba(NEW))
    assert vars(one).keys() == vars(other).keys()
    assert one.classes_.dtype == other.classes_.dtype
    np.testing.assert_array_equal(one.classes_, other.classes_)
    assert one.diagnostics_ == other.diagnostics_
    assert one.run_.samples.keys() == other.run_.samples.keys()
    for name, draws in one.run_.samples.items():
        np.testing.assert_array_equal(draws, other.run_.samples[name])


def assert_same_program(one, other):
    """Require states that are the same to JAX, which then compiles nothing anew."""
    types = [jax.tree.map(jax.typeof, model.run_.state) for model in (one, other)]
    assert types[0] == types[1]
    assert one.run_.sampler.blocks == other.run_.sampler.blocks


# The same model --------------------------------------------------------------------------------

CONFIGURATIONS = {
    "fixed": {},
    "sampled": {
        "lengthscale": "sample",
        "lengthscale_grid": np.geomspace(0.5, 5, 4),
        "likelihood": "normalized",
        "preset": "default",
        "thinning": 2,
    },
    "independent": {
        "coupling": "independent",
        "lengthscale": [1.0, 2.0],
        "preset": "paper",
        "hyperparameters": Hyperparameters(noise_rate=2.0),
        "class_weight": {"blue": 0.5, "green": 1, "red": 2.0},
        "standardize": False,
    },
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name == "sampled" else ())
        for name in CONFIGURATIONS
    ],
)
def test_loading_gives_the_model_back_and_its_chains_go_on(name, tmp_path):
    settings = CONFIGURATIONS[name]
    model = fit(**settings)
    assert model.save(tmp_path / "model.nc") is model
    loaded = load(tmp_path / "model.nc")
    assert_same_model(model, loaded)
    assert repr(loaded) == repr(model)
    assert loaded.run_.seconds == model.run_.seconds > 0
    assert_same_program(model, loaded)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded.fit_more(10)
    # Having run longer, not what the model in memory would do next: one may hide the other's error.
    longer = fit(**settings, num_samples=30)
    np.testing.assert_array_equal(longer.predict_proba(NEW), loaded.predict_proba(NEW))
    for site, draws in longer.run_.samples.items():
        np.testing.assert_array_equal(draws, loaded.run_.samples[site])


def test_pickling_gives_the_model_back_too(fitted):
    unpickled = pickle.loads(pickle.dumps(fitted))
    assert_same_model(fitted, unpickled)
    assert_same_program(fitted, unpickled)


@pytest.mark.parametrize(
    "selection",
    [
        CrossValidation(
            grid=np.array([1.0, 1.5]),
            log_loss=np.array([[2.0, np.nan], [1.0, 1.0]]),
            error=np.zeros((2, 2)),
            loo=np.zeros((2, 0)),
            pareto_k=np.zeros((2, 0)),
            criterion="log_loss",
        ),
        EvidenceMaximum(
            lengthscale=np.array([1.5, 2.0]),
            precision=None,
            noise_variance=0.5,
            path=np.ones((3, 2)),
            gradients=np.ones((3, 2)),
            gradient=np.ones(2),
            gradient_error=np.ones(2),
            log_error=np.ones(2),
            rhat=1.0,
            converged=True,
            init_params={"precision": np.ones(2)},
        ),
    ],
    ids=["cv", "marginal-likelihood"],
)
def test_how_the_lengthscale_was_found_is_saved(fitted, selection, tmp_path):
    other = renamed(fitted, fitted.classes_)
    other.run_ = dataclasses.replace(other.run_, sampler=copy.copy(other.run_.sampler))
    other.run_.sampler.lengthscale_selection = selection
    other.save(tmp_path / "model.nc")
    found = load(tmp_path / "model.nc").run_.sampler.lengthscale_selection
    assert type(found) is type(selection)
    np.testing.assert_array_equal(found.lengthscale, selection.lengthscale)
    for field in dataclasses.fields(selection):
        np.testing.assert_equal(getattr(found, field.name), getattr(selection, field.name))


def test_all_that_is_learned_is_saved(fitted):
    assert vars(fitted).keys() <= {*fitted.get_params(), *model_file.FITTED, "run_"}


def test_a_model_of_rows_without_names_and_some_without_weight(tmp_path):
    # Two rows of no weight leave as many as the other models have, and one program serves all.
    rows = np.concatenate([X.to_numpy(), NEW.to_numpy()[:2]])
    gram = np.exp(-0.1 * ((rows[:, None] - rows) ** 2).sum(-1))
    labels, weights = np.concatenate([Y, Y[:2]]), np.repeat([1.0, 0.0], [len(Y), 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BMSVMClassifier(
            kernel="precomputed", lengthscale=1.0, likelihood="hinge", preset="gibbs", **SMALL
        ).fit(gram, labels, weights)
    model.save(tmp_path / "model.nc")
    np.testing.assert_array_equal(
        load(tmp_path / "model.nc").predict_proba(gram), model.predict_proba(gram)
    )


@pytest.mark.parametrize(
    "classes",
    [
        np.array([-3, 0, 2**62]),
        np.array([1, 2, 3], np.uint8),
        np.array([0.1, 1.0, 1e300]),
        np.array([0.1, 0.2, 0.3], np.float32),
        np.array(["a", "ß", "\ud800\x01<&'\""], "<U40"),
        np.array(["a", "b", "c"], object),
        np.array([1, 2, 3], object),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_classes_keep_their_values_and_type(fitted, classes, tmp_path):
    renamed(fitted, classes).save(tmp_path / "model.nc")
    found = load(tmp_path / "model.nc").classes_
    assert found.dtype == classes.dtype
    assert found.tolist() == classes.tolist()
    assert [type(each) for each in found.tolist()] == [type(each) for each in classes.tolist()]


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 2)])
def test_every_type_of_array_survives(dtype, shape):
    raw = np.random.default_rng(0).bytes(8 * 15)
    values = np.frombuffer(raw, "u1").astype(dtype) if dtype == "bool" else None
    if values is None:
        values = np.frombuffer(raw, np.dtype(dtype).newbyteorder(">"))
    values = np.resize(values, shape).astype(dtype)
    encoder, file = Encoder(), io.BytesIO()
    text = json.loads(json.dumps(encoder.encode(values, "values")))
    netcdf3.write(file, {"title": "x"}, document.variables_of(encoder.arrays))
    size = file.tell()
    file.seek(0)
    found = Decoder(document.reader(file, netcdf3.read_header(file, size))).decode(text)
    assert found.dtype == values.dtype
    assert found.shape == values.shape
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        2**70,
        0.1,
        float("inf"),
        "text",
        [1, "a", [None]],
        (1, (2.5,)),
        {"a": 1, 2: (3,), None: []},
        np.float32(0.1),
        np.int64(-1),
        Hyperparameters(noise_rate=3.0),
    ],
    ids=repr,
)
def test_settings_survive_with_their_types(value):
    text = json.dumps(Encoder().encode(value, "value"), allow_nan=False)
    found = Decoder(None).decode(json.loads(text))
    assert type(found) is type(value)
    assert found == value


def test_other_programs_read_the_file(fitted, image, tmp_path):
    (tmp_path / "model.nc").write_bytes(image)
    with scipy.io.netcdf_file(tmp_path / "model.nc", mmap=False) as file:
        assert file.version_byte == 2
        assert json.loads(file.settings)["parameters"]["likelihood"] == "hinge"
        np.testing.assert_array_equal(file.variables["training_rows"][:], fitted.training_rows_)
    with xarray.open_dataset(tmp_path / "model.nc", engine="scipy") as data:
        assert data["draws_weights"].dims == ("chain", "draw", "basis", "column")
        np.testing.assert_array_equal(data["draws_precision"], fitted.run_.samples["precision"])
        assert data.attrs["bmsvm_version"] == bmsvm.__version__


# What cannot be saved --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": kernels.linear()}, "kernel must be one that has a name"),
        ({"random_state": np.random.RandomState(0)}, "random_state must be an integer or None"),
        ({"class_weight": object()}, "parameter_class_weight cannot be saved"),
        ({"lengthscale": np.array([1 + 2j])}, "parameter_lengthscale cannot be saved.*complex128"),
    ],
)
def test_what_cannot_be_saved_is_named(fitted, changes, message, tmp_path):
    other = renamed(fitted, fitted.classes_).set_params(**changes)
    with pytest.raises(ValueError, match=message):
        other.save(tmp_path / "model.nc")
    assert not list(tmp_path.iterdir())


def test_only_fitted_models_are_saved(tmp_path):
    with pytest.raises(NotFittedError):
        BMSVMClassifier().save(tmp_path / "model.nc")


# Crashes ---------------------------------------------------------------------------------------

KILLED = """
import os, runpy, signal, sys
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


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("moment", ["write", "fsync", "replace", "end"])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_killed_save_leaves_the_old_file_or_none(moment, old, tmp_path):
    path = tmp_path / "model.nc"
    if old is not None:
        path.write_bytes(old)
    command = [sys.executable, "-c", KILLED, atomic.__file__, str(path), moment]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    expected = b"new" * 100_000 if moment == "end" else old
    assert (path.read_bytes() if path.exists() else None) == expected


@pytest.mark.parametrize("old", [b"old", None])
def test_a_full_disk_leaves_the_old_file_and_says_so(fitted, old, tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "model.nc"
    if old is not None:
        path.write_bytes(old)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="nothing was saved") as caught:
            fitted.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(path)
    kept = "what was there is unchanged" if old else "there is no file"
    assert kept in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == (["model.nc"] if old else [])
    assert old is None or path.read_bytes() == old


def test_an_interrupted_save_leaves_nothing_behind(fitted, monkeypatch, tmp_path):
    def interrupted(file, *_):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(document, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted.save(tmp_path / "model.nc")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="links and modes")
def test_saving_keeps_links_and_permissions(fitted, tmp_path):
    real, link = tmp_path / "real.nc", tmp_path / "link.nc"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    fitted.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    load(real)


# Files from strangers --------------------------------------------------------------------------


def signed(attributes, variables):
    """Return a file whose checksum is right, whatever it says."""
    file = io.BytesIO()
    netcdf3.write(file, attributes, variables)
    return resigned(file.getvalue())


def resigned(data):
    file = io.BytesIO(data)
    header = netcdf3.read_header(file, len(data))
    begin = header.attributes["sha256"].begin
    digest = document.digest_of(file, header).encode()
    return data[:begin] + digest + data[begin + len(digest) :]


def altered(contents, change):
    """Return a signed file whose settings were changed in place."""
    attributes, variables = contents
    settings = json.loads(attributes["settings"])
    change(settings)
    return signed({**attributes, "settings": json.dumps(settings)}, variables)


def load_bytes(data, tmp_path):
    path = tmp_path / "model.nc"
    path.write_bytes(data)
    return load(path)


def netcdf_of_someone_else(version):
    file = io.BytesIO()
    data = scipy.io.netcdf_file(file, "w", version=version)
    data.title = "sea surface temperature"
    data.createDimension("time", 3)
    data.createVariable("time", "i", ("time",))[:] = 1
    data.flush()
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a netCDF file"),
        (b"CDF", "not a netCDF file"),
        (b"width,height\n1,2\n", "not a netCDF file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "not a netCDF file"),
        (pickle.dumps({"a": 1}), "not a netCDF file"),
        (netcdf_of_someone_else(1), "not a netCDF file with 64-bit offsets"),
        (netcdf_of_someone_else(2), "not a bmsvm model"),
    ],
)
def test_foreign_files_are_refused(data, message, tmp_path):
    with pytest.raises(ModelFileError, match=message) as caught:
        load_bytes(data, tmp_path)
    assert str(tmp_path / "model.nc") in str(caught.value)


def test_what_is_not_a_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.nc")
    with pytest.raises(ModelFileError, match="not a file"):
        load(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelFileError, match="not a file"):
            load(tmp_path / "pipe")


def test_truncated_files_are_refused(image, tmp_path):
    for size in np.linspace(4, len(image) - 1, 40).astype(int):
        with pytest.raises(ModelFileError, match=": it is truncated"):
            load_bytes(image[:size], tmp_path)


def test_a_flipped_bit_is_noticed(image, tmp_path):
    data = bytearray(image)
    data[-5] ^= 1
    with pytest.raises(ModelFileError, match="checksum"):
        load_bytes(bytes(data), tmp_path)


def test_later_versions_are_named(contents, tmp_path):
    attributes, variables = contents
    future = {**attributes, "format_version": FORMAT_VERSION + 1, "bmsvm_version": "9.9"}
    with pytest.raises(ModelFileError, match=r"version 2, written by bmsvm 9\.9.*upgrade bmsvm"):
        load_bytes(signed(future, variables), tmp_path)


def _set(*path, to):
    def change(settings):
        *parents, last = path
        for key in parents:
            settings = settings[key]
        settings[last] = to

    return change


BASIS = ("run", "problem", "fields", "factor", "fields", "basis")


@pytest.mark.parametrize(
    "change",
    [
        _set("estimator", to="os.system"),
        _set("parameters", "shell", to="rm"),
        _set("parameters", "kernel", to={"structure": "eval", "fields": {"x": 1}}),
        _set("parameters", "kernel", to={"structure": "Hyperparameters", "fields": {"x": 1}}),
        _set("fitted", "predict", to="anything"),
        _set("fitted", "__class__", to="anything"),
        _set("fitted", "seed_", to=-1),
        _set("fitted", "classes_", to=["a", "b", "c"]),
        _set("fitted", "classes_", "strings", to=["a"]),
        _set("fitted", "kernel_", to="linear"),
        _set("fitted", "lengthscale_", to=-1.0),
        _set("fitted", "n_features_in_", to=3),
        _set("fitted", "input_scale_", to=None),
        _set("fitted", "feature_names_in_", "objects", to=[1, 2]),
        _set("fitted", "diagnostics_", to={"tuple": [{}]}),
        _set("run", "thinning", to=0),
        _set("run", "seconds", to="soon"),
        _set("run", "sampler", "preset", to="none"),
        _set("run", "sampler", "likelihood", to="normalized"),
        _set("run", "sampler", "blocks", to=[]),
        _set("run", "sampler", "lengthscale", to="sample"),
        _set("run", "problem", to=None),
        _set("run", "problem", "fields", "n_classes", to=4),
        _set("run", "problem", "fields", "n_classes", to=10**9),
        _set("run", "problem", "fields", "grid", to=1),
        _set("run", "problem", "fields", "family", to=1),
        _set("run", "selection", to=1.5),
        _set(*BASIS, "jax", "shape", to=[1024]),
        _set(*BASIS, "jax", "shape", to=[32, -32]),
        _set(*BASIS, "jax", "shape", to=[2**30, 2**30, 2**30]),
        _set(*BASIS, "jax", "dtype", to="int64"),
        _set(*BASIS, "jax", "dtype", to="object"),
        _set(*BASIS, "jax", "name", to="draws_precision"),
        _set(*BASIS, "jax", "name", to="nothing"),
        _set("run", "state", ".rng_key", "kind", to="none"),
        _set("run", "state", to={}),
        _set("run", "samples", to={}),
        _set("run", to=[]),
    ],
)
def test_a_signed_file_that_makes_no_sense_is_refused(contents, change, tmp_path):
    with pytest.raises(ModelFileError):
        load_bytes(altered(contents, change), tmp_path)


def _bomb(settings):
    return {
        "title": model_file.KIND.title,
        "format_version": 1,
        "sha256": "0" * 64,
        "settings": settings,
    }


def _header_bombs():
    """Headers that promise much in few bytes."""
    number = netcdf3._int
    most = b"\xff\xff\xff\xff"
    start = netcdf3.MAGIC + number(0)
    no_attributes = number(0) + number(0)
    dimension = number(10) + number(1) + netcdf3._string("x") + b"\x7f\xff\xff\xff"
    yield start + number(10) + most
    yield start + number(10) + number(1) + most
    yield start + number(0) + most
    yield start + no_attributes + number(12) + number(1) + netcdf3._string("a") + number(6) + most
    for rank in (2, 30, 2**20):
        variable = netcdf3._string("v") + number(rank) + number(0) * rank + no_attributes
        place = number(6) + number(0) + bytes(7) + b"\x80"
        yield start + dimension + no_attributes + number(11) + number(1) + variable + place
    one = netcdf3._string("v") + number(0) + no_attributes + number(6) + number(0) + bytes(8)
    yield start + no_attributes * 2 + number(11) + number(2**20) + one * 2**16


@pytest.mark.parametrize("data", list(_header_bombs()))
def test_a_header_of_large_promises_costs_nothing(data, tmp_path):
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            load_bytes(data, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**20 + 40 * len(data)
    finally:
        tracemalloc.stop()


WIDE = {"strings": ["a"], "width": 2**23}


@pytest.mark.parametrize(
    "settings",
    [
        "[" * 10**6,
        "9" * 10**6,
        '{"estimator": ' + "[" * 900 + "]" * 900 + "}",
        json.dumps(
            {"estimator": "BMSVMClassifier", "parameters": {"kernel": {"float": "9" * 5000}}}
        ),
        json.dumps({"estimator": "BMSVMClassifier", "parameters": {"kernel": [WIDE] * 99}}),
        '{"estimator": "BMSVMClassifier", "parameters": {"kernel": {"array": {"name": "v", '
        '"dtype": "float64", "shape": [1073741824, 1073741824]}}}}',
    ],
    ids=["nested", "digits", "deep", "number", "strings", "shape"],
)
def test_settings_of_large_promises_cost_little(settings, tmp_path):
    variables = {"v": netcdf3.Variable((), np.zeros(()))}
    data = signed(_bomb(settings), variables)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            load_bytes(data, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()


def test_a_short_file_cannot_ask_for_many_copies():
    decoder = Decoder(lambda name, dtype, shape: np.zeros(shape, dtype))
    array = {"array": {"name": "v", "dtype": "int8", "shape": [10]}}
    decoder.decode(array)
    with pytest.raises(ModelFileError, match="used twice"):
        decoder.decode(array)


def test_variables_that_overlap_are_refused(image):
    header = netcdf3.read_header(io.BytesIO(image), len(image))
    first, second = list(header.variables.values())[:2]
    begin = image.index(second.begin.to_bytes(8, "big"))
    for place in (0, first.begin, second.begin - 4):
        damaged = image[:begin] + place.to_bytes(8, "big") + image[begin + 8 :]
        with pytest.raises(ModelFileError, match="overlap"):
            netcdf3.read_header(io.BytesIO(damaged), len(damaged))


def _mutated(data, chance, header_size):
    """Damage a file somewhere: every other time in its header."""
    data = bytearray(data)
    end = header_size if chance.random() < 0.5 else len(data)
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


def test_damaged_files_raise_one_error_and_no_other(image, tmp_path):
    header_size = min(
        place.begin
        for place in netcdf3.read_header(io.BytesIO(image), len(image)).variables.values()
    )
    for number in range(MUTATIONS):
        chance = random.Random(number)
        data = _mutated(image, chance, header_size)
        if data != image:
            with pytest.raises(ModelFileError):
                load_bytes(data, tmp_path)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs alarms and resource limits")
def test_ten_thousand_damaged_files_neither_hang_nor_fill_memory(image, tmp_path):
    """Half of them with their checksum made right; a minute for one file is a hang."""
    import resource

    def hangs(*_):
        pytest.fail(f"file {number} takes more than a minute")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    previous = signal.signal(signal.SIGALRM, hangs)
    try:
        for number in range(10_000):
            data = _mutated(image, random.Random(10**6 + number), len(image))
            if number % 2:
                with contextlib.suppress(ModelFileError, KeyError):  # no header left to sign
                    data = resigned(data)
            signal.alarm(60)
            with contextlib.suppress(ModelFileError):
                load_bytes(data, tmp_path)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 100, f"memory grew by {grown:.0f} MB over files of {len(image)} bytes"


def test_damaged_files_with_a_right_checksum_load_or_raise_that_error(image, contents, tmp_path):
    attributes, variables = contents
    text = attributes["settings"]
    refused = 0
    for number in range(MUTATIONS):
        chance = random.Random(number)
        try:
            if number % 2:
                damaged = _mutated(text.encode(), chance, len(text)).decode("ascii", "replace")
                damaged = damaged.replace("\ufffd", "?").replace("\0", "0")
                data = signed({**attributes, "settings": damaged}, variables)
            else:
                data = resigned(_mutated(image, chance, len(image)))
        except (ModelFileError, KeyError):  # no header left to sign
            refused += 1
            continue
        try:
            load_bytes(data, tmp_path)
        except ModelFileError:
            refused += 1
    assert refused > MUTATIONS // 3


def test_loading_imports_and_runs_nothing_of_the_file():
    source = "".join(
        Path(module.__file__).read_text()
        for module in (model_file, netcdf3, sys.modules[Encoder.__module__])
    )
    for word in ("pickle.", "eval(", "exec(", "import_module", "__import__", "allow_pickle=True"):
        assert word not in source
