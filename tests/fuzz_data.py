"""Data for fuzzing: good rows, labels and weights, and changes that may happen to them."""

import contextlib
import warnings

import hypothesis.strategies as st
import jax
import numpy as np
import pandas as pd
import scipy.sparse

N, P = 9, 2
ROWS = np.random.default_rng(0).normal(size=(N, P))
LABELS = np.arange(N) % 3
NEW = np.random.default_rng(1).normal(size=(4, P))


class Case(dict):
    """Rows X, labels y, weights, new rows, and settings of a model."""

    def __repr__(self) -> str:
        return f"Case({super().__repr__()})"


def whole_case() -> Case:
    return Case(X=ROWS.copy(), y=LABELS.copy(), weights=None, new=NEW.copy(), settings={})


numbers = st.sampled_from(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-12,
        1000000000000.0,
        1e-150,
        1e150,
        5e-324,
        -1e308,
        1e308,
        np.nan,
        np.inf,
        -np.inf,
    ]
)
anything = st.one_of(
    numbers,
    st.sampled_from(
        [
            None,
            "",
            "word",
            "☃",
            "\x00",
            b"bytes",
            1j,
            (),
            [],
            {},
            object,
            True,
            False,
            10**400,
            -1,
            0,
            np.array([]),
            np.array(["a"]),
            np.float32(2),
            np.int8(1),
            [1.0, 2.0],
            [1.0, np.nan],
            np.zeros((2, 2)),
            lambda *args: None,
            np.datetime64("NaT"),
            "sample",
            "squares-cv",
        ]
    ),
)

# Changes of a case: each takes the case and Hypothesis' draw.


def put_in_rows(case, draw):
    rows = np.array(case["X"], dtype=float)
    rows[draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, rows.shape[1] - 1))] = draw(
        numbers
    )
    case["X"] = rows


def put_in_new_rows(case, draw):
    case["new"][draw(st.integers(0, 3)), draw(st.integers(0, P - 1))] = draw(numbers)


def scale_rows(case, draw):
    power = draw(st.sampled_from([-300, -150, -12, -6, 6, 12, 150, 300]))
    scale = 10.0**power if draw(st.booleans()) else np.array([10.0**power, 1.0])
    with np.errstate(all="ignore"):
        case["X"], case["new"] = case["X"] * scale, case["new"] * scale


def shift_rows(case, draw):
    case["X"] = case["X"] + draw(st.sampled_from([1e6, -1e12, 1e300]))


def retype_rows(case, draw):
    dtype = draw(
        st.sampled_from(["f2", "f4", "g", "i1", "u8", "?", "O", "U9", "c16", "S5", "M8[s]"])
    )
    with contextlib.suppress(TypeError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case["X"] = np.asarray(case["X"]).astype(dtype)


def wrap_rows(case, draw):
    case["X"] = draw(
        st.sampled_from(
            [
                scipy.sparse.csr_matrix,
                scipy.sparse.coo_array,
                pd.DataFrame,
                lambda rows: pd.DataFrame(rows, columns=["ü", "\N{SNOWMAN}"]),
                lambda rows: pd.DataFrame(rows).astype("Float64"),
                lambda rows: rows.tolist(),
                lambda rows: tuple(map(tuple, rows)),
                np.ma.masked_array,
                jax.numpy.asarray,
                np.asfortranarray,
                lambda rows: rows[::-1],
                lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
                lambda rows: np.broadcast_to(rows[:1], rows.shape),
                lambda rows: rows.T,
                lambda rows: rows[:, 0],
                lambda rows: rows[None],
                lambda rows: rows[:, :0],
                lambda rows: rows[:0],
                lambda rows: rows[:1],
                lambda rows: iter(rows),
                lambda rows: memoryview(np.ascontiguousarray(rows)),
                lambda rows: np.zeros_like(rows),
                lambda rows: np.concatenate([rows[:3]] * 3),
                lambda rows: rows.view(np.recarray),
                lambda rows: [list(rows[0]), *rows[1:].tolist(), [1.0]],
                lambda rows: None,
                lambda rows: "rows",
            ]
        )
    )(np.asarray(case["X"], dtype=float))


def freeze_rows(case, draw):
    case["X"] = np.array(case["X"])
    case["X"].flags.writeable = False


WORDS = np.array(["naïve", "\N{SNOWMAN}", "‮right to left"])


def change_labels(case, draw):
    case["y"] = draw(
        st.sampled_from(
            [
                lambda y: WORDS[y],
                lambda y: WORDS.astype(object)[y],
                lambda y: np.array(["", " ", "\x00a"])[y],
                lambda y: np.array(["\ud800", "b", "c"], object)[y],
                lambda y: y * 0,
                lambda y: y > 0,
                lambda y: y - 1,
                lambda y: y.astype(float),
                lambda y: y + 0.5,
                lambda y: y.astype("u8") + 2**63,
                lambda y: np.where(y == 0, np.nan, y),
                lambda y: np.where(y == 0, np.inf, y),
                lambda y: y.astype("S1"),
                lambda y: y.astype("c8"),
                lambda y: y[:, None],
                lambda y: np.eye(3)[y],
                lambda y: y[:-1],
                lambda y: y[:0],
                lambda y: y.tolist(),
                lambda y: [0, 1.0, 2] * 3,
                lambda y: [0, "1", 2] * 3,
                lambda y: [None, 1, 2] * 3,
                lambda y: [(0,), (1,), (2,)] * 3,
                lambda y: pd.Series(y, dtype="category"),
                lambda y: pd.Series(WORDS[y], dtype="string"),
                lambda y: pd.Series([pd.NA, "b", "c"] * 3, dtype="string"),
                lambda y: np.array(["2001-01-01", "NaT", "2003-01-01"], "M8[D]")[y],
                lambda y: None,
                lambda y: 3,
                lambda y: "labels!!!",
                lambda y: iter(y),
                lambda y: scipy.sparse.csr_matrix(y),
                lambda y: np.array([0, 1, 2] + [2] * 6),
                lambda y: np.array([0] + [1] * 8),
                lambda y: np.array([{}, [], 1] * 3, dtype=object),
            ]
        )
    )(LABELS)


def change_weights(case, draw):
    case["weights"] = draw(
        st.sampled_from(
            [
                np.ones(N),
                np.zeros(N),
                -np.ones(N),
                np.full(N, np.nan),
                np.full(N, 1e300),
                np.full(N, 1e-300),
                np.where(LABELS == 0, 0.0, 1.0),
                np.where(LABELS == 0, 1.0, 0.0),
                np.where(np.arange(N) == 0, np.inf, 1.0),
                np.ones(N - 1),
                np.ones((N, 1)),
                np.array(["1"] * N),
                np.ones(N, bool),
                2.0,
                "balanced",
                [None] * N,
                list(range(N)),
            ]
        )
    )


def change_new_rows(case, draw):
    case["new"] = draw(
        st.sampled_from(
            [
                lambda rows: rows[:, :1],
                lambda rows: rows[:0],
                lambda rows: rows[0],
                lambda rows: scipy.sparse.csr_matrix(rows),
                lambda rows: rows.tolist(),
                lambda rows: rows.astype("O"),
                lambda rows: rows.astype("f4"),
                lambda rows: rows.astype(str),
                lambda rows: rows * 1e12,
                lambda rows: rows * 1e200,
                lambda rows: rows * 1e308 * 10,
                lambda rows: np.asfortranarray(rows)[::-1],
                lambda rows: pd.DataFrame(rows, columns=["a", "b"]),
                lambda rows: None,
                lambda rows: ROWS[:4].copy(),
            ]
        )
    )(NEW.copy())


DATA = (
    *(put_in_rows, scale_rows, shift_rows, retype_rows, wrap_rows, freeze_rows),
    *(change_labels, change_labels, change_weights),
)
