"""Missing values and categories: the error names the transformer, and the transformer helps."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from bmsvm import BMSVMClassifier, LeastSquaresSVM, MSVMClassifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = np.where(X[:, 0] > 0, "high", "low")
ESTIMATORS = [BMSVMClassifier, MSVMClassifier, LeastSquaresSVM]
PIPELINE = {
    "SimpleImputer": SimpleImputer,
    "OneHotEncoder": OneHotEncoder,
    "make_column_transformer": make_column_transformer,
    "make_pipeline": make_pipeline,
    "BMSVMClassifier": lambda: BMSVMClassifier(likelihood="squared", lengthscale=1.0),
}


def with_gap(frame: bool):
    rows = X.copy()
    rows[[3, 7], 1] = np.nan
    return pd.DataFrame(rows, columns=["age", "height"]) if frame else rows


def with_words(frame: bool):
    table = pd.DataFrame({"age": X[:, 0], "colour": ["red", "blue"] * 15, "digits": ["1.5"] * 30})
    return table if frame else table.to_numpy(dtype=object)


def advice(error: pytest.ExceptionInfo) -> str:
    """Return the pipeline that a message proposes."""
    text = str(error.value)
    return text[text.index("make_pipeline(") : text.index(" with sklearn")]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("frame", "column"), [(False, "1"), (True, "'height'")])
def test_the_error_for_missing_values_names_the_imputer(estimator, frame, column):
    place = f"NaN in 2 of 30 rows, first in row 3, column {column};"
    with pytest.raises(ValueError, match=place) as error:
        estimator().fit(with_gap(frame), Y)
    assert advice(error) == f"make_pipeline(SimpleImputer(), {estimator.__name__}())"


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("frame", "column"), [(False, "1"), (True, "'colour'")])
def test_the_error_for_strings_names_the_encoder(estimator, frame, column):
    with pytest.raises(ValueError, match=f"'red' in row 0, column {column}") as error:
        estimator().fit(with_words(frame), Y)
    encoder = 'OneHotEncoder(handle_unknown="ignore", sparse_output=False)'
    assert f"({encoder}, [{column}])" in advice(error)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("frame", "column"), [(False, "1"), (True, "'height'")])
def test_the_error_for_infinity_says_where_it_is(estimator, frame, column):
    rows = (
        with_gap(frame).replace(np.nan, np.inf)
        if frame
        else np.nan_to_num(with_gap(frame), nan=np.inf)
    )
    with pytest.raises(ValueError, match=f"in 2 of 30 rows, first in row 3, column {column};"):
        estimator().fit(rows, Y)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_the_error_for_dates_says_where_they_are(zone):
    days = pd.date_range("2026-01-01", periods=30, tz=zone)
    with pytest.raises(ValueError, match=r"X must have numbers; got Timestamp\(.* column 'day'\."):
        BMSVMClassifier().fit(pd.DataFrame({"age": X[:, 0], "day": days}), Y)


@pytest.mark.parametrize(
    ("missing", "kind"), [(None, list), (None, pd.Series), (np.nan, pd.Series), (pd.NA, pd.Series)]
)
def test_the_error_for_a_missing_label_says_where_it_is(missing, kind):
    with pytest.raises(ValueError, match=r"y must not have missing .* labels; got y\[4\] = "):
        BMSVMClassifier().fit(X, kind([*Y[:4], missing, *Y[5:]]))


@pytest.mark.parametrize("dtype", [object, "Int64", float])
def test_the_error_for_a_missing_number_says_where_it_is(dtype):
    codes = pd.Series([0, 1, 2, 1, None, *[0, 1] * (len(Y) // 2)][: len(Y)], dtype=dtype)
    with pytest.raises(ValueError, match=r"y must not have missing .* got y\[4\] = .* rows out"):
        BMSVMClassifier().fit(X, codes)


def test_what_is_proposed_works():
    for rows in (with_gap(False), with_words(True), with_words(False)):
        with pytest.raises(ValueError, match="make_pipeline") as error:
            BMSVMClassifier().fit(rows, Y)
        model = eval(advice(error), PIPELINE).fit(rows, Y)
        assert model.score(rows, Y) > 0.8


def test_what_is_proposed_works_with_many_categories():
    # The encoder alone would return a sparse matrix.
    table = pd.DataFrame({"age": X[:, 0], "town": [f"town {row % 10}" for row in range(30)]})
    with pytest.raises(ValueError, match="make_pipeline") as error:
        BMSVMClassifier().fit(table, Y)
    model = eval(advice(error), PIPELINE).fit(table, Y)
    assert model.predict_proba(table).shape == (30, 2)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_error_for_sparse_matrices_names_the_option_of_the_encoder(estimator):
    with pytest.raises(TypeError, match=r"Sparse data .* sparse_output=False"):
        estimator().fit(scipy.sparse.csr_array(X), Y)


def test_categories_and_missing_values_at_once():
    table = pd.DataFrame({"age": X[:, 0], "colour": ["red", "blue", np.nan] * 10})
    table.loc[3, "age"] = np.nan
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encode = make_column_transformer((encoder, ["colour"]), remainder="passthrough")
    model = PIPELINE["BMSVMClassifier"]()
    assert make_pipeline(encode, SimpleImputer(), model).fit(table, Y).score(table, Y) > 0.8


def test_new_rows_are_told_the_same():
    model = MSVMClassifier(gamma=1.0).fit(X, Y)
    with pytest.raises(ValueError, match=r"SimpleImputer\(\), MSVMClassifier"):
        model.predict(with_gap(False))


def test_a_single_string_is_no_table():
    model = BMSVMClassifier(likelihood="squared", lengthscale=1.0).fit(X, Y)
    with pytest.raises(ValueError, match="X must"):
        model.predict("age")


def test_other_errors_are_those_of_scikit_learn():
    gram = X @ X.T
    gram[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"^Input X contains NaN"):
        BMSVMClassifier(kernel="precomputed").fit(gram, Y)
    with pytest.raises(ValueError, match=r"^Input X contains infinity"):
        BMSVMClassifier(kernel="precomputed").fit(np.where(gram > 1, np.inf, 0), Y)
