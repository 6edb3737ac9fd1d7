"""Files that are not models of this version are refused with one exception, and cost little."""

import copy
import json
import os
import pickle
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from model_files import contents_of, image_of, signed
from safetensors.numpy import save as tensors_of
from small_models import NEW, fit

from bmsvm import load
from bmsvm.persistence import FORMAT_VERSION, ModelFileError


@pytest.fixture(scope="module")
def fitted():
    return fit()


@pytest.fixture(scope="module")
def image(fitted):
    return image_of(fitted)


@pytest.fixture(scope="module")
def contents(image):
    return contents_of(image)


def load_bytes(data, tmp_path):
    path = tmp_path / "model.bmsvm"
    path.write_bytes(data)
    return load(path)


# Other files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"CDF\x02",
        b"width,height\n1,2\n",
        b"\x89HDF\r\n\x1a\n" + bytes(100),
        pickle.dumps({"a": 1}),
        tensors_of({"time": np.arange(3)}),
        tensors_of({"time": np.arange(3)}, {"title": "sea surface temperature"}),
        tensors_of({"time": np.arange(3)}, {"bmsvm": "3", "sha256": ""}),
    ],
    ids=["empty", "netcdf", "csv", "hdf", "pickle", "tensors", "metadata", "number"],
)
def test_foreign_files_are_refused(data, tmp_path):
    with pytest.raises(ModelFileError, match=r"model\.bmsvm"):
        load_bytes(data, tmp_path)


def test_what_is_not_a_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.bmsvm")
    with pytest.raises(ModelFileError):
        load(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelFileError):
            load(tmp_path / "pipe")


def test_truncated_files_are_refused(image, tmp_path):
    for size in np.linspace(4, len(image) - 1, 40).astype(int):
        with pytest.raises(ModelFileError, match="truncated"):
            load_bytes(image[:size], tmp_path)


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, FORMAT_VERSION - 1, None])
def test_other_versions_are_named(contents, version, tmp_path):
    document, arrays = contents
    other = {**document, "format_version": version, "versions": {"bmsvm": "9.9"}}
    with pytest.raises(ModelFileError, match=rf"version {version}.*9\.9.*version {FORMAT_VERSION}"):
        load_bytes(signed(other, arrays), tmp_path)


def test_a_document_of_another_format_is_no_model(contents, tmp_path):
    document, arrays = contents
    other = {**document, "format": "bmsvm chains"}
    with pytest.raises(ModelFileError, match="not a bmsvm model"):
        load_bytes(signed(other, arrays), tmp_path)


# Nonsense with a right digest ----------------------------------------------------------------


def test_a_file_put_together_by_the_documentation_is_loaded(fitted, contents, tmp_path):
    loaded = load_bytes(signed(*contents), tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(NEW), fitted.predict_proba(NEW))


def _set(*path, to):
    def change(document):
        *parents, last = path
        for key in parents:
            document = dict(document["dict"])[key] if "dict" in document else document[key]
        document[last] = to

    return change


PREDICTIVE = ("fitted", "predictive_", "fields")
POSTERIOR = (*PREDICTIVE, "posterior", "fields")
RUN = ("fitted", "run_", "fields")
STATE = (*RUN, "state", "fields")
PROBLEM = (*STATE, "problem", "fields")
BASIS = (*PROBLEM, "factor", "fields", "basis")


@pytest.mark.parametrize(
    "change",
    [
        _set("class", to="os.system"),
        _set("class", to="MSVMClassifier"),
        _set("parameters", "shell", to="rm"),
        _set("parameters", "kernel", to={"structure": "eval", "fields": {"x": 1}}),
        _set("parameters", "kernel", to={"structure": "Hyperparameters", "fields": {"x": 1}}),
        _set("fitted", "predict", to="anything"),
        _set("fitted", "__class__", to="anything"),
        _set("fitted", "seed_", to="one"),
        _set("fitted", "classes_", to=["a", "b", "c"]),
        _set("fitted", "classes_", to={"objects": ["a"]}),
        _set("fitted", "selection_", to=1.5),
        _set("fitted", "selection_", to={"structure": "Gaussian", "fields": {}}),
        _set("fitted", "kept_rows_", to=3),
        _set("fitted", "lengthscale_", to="short"),
        _set("fitted", "n_features_in_", to=3),
        _set("fitted", "diagnostics_", to={"tuple": [{}]}),
        _set("fitted", "diagnostics_", to={"dict": [["precision", 1.0]]}),
        _set("fitted", "predictive_", to=None),
        _set("fitted", "posterior_", to=None),
        _set(*PREDICTIVE, "calibration", to={"tuple": [1.0, 0.0, 1.0, 0.0]}),
        _set(*PREDICTIVE, "squares", to={"tuple": [1.0, 0.0]}),
        _set(*PREDICTIVE, "posterior", to=None),
        _set(*POSTERIOR, "training_rows", to=None),
        _set(*POSTERIOR, "remainder", to=1),
        _set(*POSTERIOR, "samples", to={"dict": []}),
        _set(*POSTERIOR, "problem", to=None),
        _set(*RUN, "thinning", to="two"),
        _set(*RUN, "seconds", to="soon"),
        _set(*RUN, "store", to=None),
        _set(*RUN, "samples", to={"dict": []}),
        _set(*RUN, "samples", to={"dict": [["precision", "text"]]}),
        _set(*RUN, "state", to={}),
        _set(*RUN, "kernel", "fields", "sampler", to="none"),
        _set(*RUN, "kernel", "fields", "blocks", to=[]),
        _set(*RUN, "kernel", "fields", "given", to="eval"),
        _set(*RUN, "kernel", "fields", "given", to={"structure": "Gaussian", "fields": {}}),
        _set("parameters", "sampler", to={"structure": "Blocks", "fields": {"sweep": []}}),
        _set("parameters", "sampler", to={"structure": "Paper", "fields": {"thinning": 2}}),
        _set(*STATE, "problem", to=None),
        _set(*STATE, "rng_key", "kind", to="none"),
        _set(*PROBLEM, "n_classes", to=4),
        _set(*PROBLEM, "n_classes", to=10**9),
        _set(*PROBLEM, "grid", to=1),
        _set(*PROBLEM, "family", to=1),
        _set(*PROBLEM, "family", to={"structure": "KernelFamily", "fields": {}}),
        _set(*BASIS, "jax", to="run_.samples.precision"),
        _set(*BASIS, "jax", to="nothing"),
        _set("fitted", "run_", to=[]),
        _set("fitted", to=[]),
    ],
)
def test_a_signed_file_that_makes_no_sense_is_refused(contents, change, tmp_path):
    document, arrays = copy.deepcopy(contents[0]), contents[1]
    change(document)
    with pytest.raises(ModelFileError):
        load_bytes(signed(document, arrays), tmp_path)


@pytest.mark.parametrize(
    ("name", "replaced"),
    [
        ("run_.samples.intercept", lambda array: array[..., :-1]),
        ("run_.samples.weights", lambda array: array[:, :-1]),
        ("run_.state.problem.labels", lambda array: array[:-1]),
        ("run_.state.problem.factor.basis", lambda array: array.reshape(-1)),
        ("scaling_.centre", lambda array: array[:1]),
        ("scaling_.limit", lambda array: 0 * array),
        ("classes_", lambda array: array[:1]),
        ("classes_", lambda array: array + np.uint32(2**31)),
        ("classes_", lambda array: array.astype(np.float64)),
    ],
)
def test_signed_arrays_that_do_not_fit_are_refused(contents, name, replaced, tmp_path):
    document, arrays = contents
    wrong = {**arrays, name: np.ascontiguousarray(replaced(arrays[name]))}
    with pytest.raises(ModelFileError):
        load_bytes(signed(document, wrong), tmp_path)


# Large promises ------------------------------------------------------------------------------


def _header(text, claimed=None):
    data = text.encode()
    return (len(data) if claimed is None else claimed).to_bytes(8, "little") + data


@pytest.mark.parametrize(
    "data",
    [
        _header("{}", 2**64 - 1),
        _header("{}", 2**26),
        _header('{"v":{"dtype":"F64","shape":[1073741824,1073741824],"data_offsets":[0,8]}}'),
        _header('{"v":{"dtype":"F64","shape":[4294967296],"data_offsets":[0,34359738368]}}'),
        _header("[" * 2**16),
    ],
    ids=["length", "longer", "shape", "offsets", "nested"],
)
def test_a_header_of_large_promises_costs_nothing(data, tmp_path):
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            load_bytes(data, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**20 + 40 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**6,
        "9" * 10**6,
        '{"class": ' + "[" * 900 + "]" * 900 + "}",
        '{"format": "bmsvm model", "format_version": ' + "[" * 10**5,
    ],
    ids=["nested", "digits", "deep", "version"],
)
def test_documents_of_large_promises_cost_little(text, tmp_path):
    data = signed(text, {"v": np.zeros(3)})
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            load_bytes(data, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "kernel",
    [
        {"float": "9" * 5000},
        {"tuple": [{"array": "v"}] * 10**5},
        {"array": "v", "dtype": "datetime64[" + "9" * 5000 + "D]"},
        json.loads("[" * 400 + "]" * 400),
    ],
    ids=["number", "copies", "date", "deep"],
)
def test_parameters_of_large_promises_cost_little(contents, kernel, tmp_path):
    document, arrays = copy.deepcopy(contents[0]), contents[1]
    document["parameters"]["kernel"] = kernel
    data = signed(document, {**arrays, "v": np.zeros(2**16)})
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            load_bytes(data, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()


def test_loading_imports_and_runs_nothing_of_the_file():
    source = Path(sys.modules[ModelFileError.__module__].__file__).read_text()
    for module in ("bmsvm.persistence", "bmsvm._encoding"):
        source += Path(sys.modules[module].__file__).read_text()
    for word in ("pickle.", "eval(", "exec(", "import_module", "__import__", "allow_pickle=True"):
        assert word not in source
