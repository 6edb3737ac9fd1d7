"""Classifiers that the benchmark of probabilities compares with, the best known of each family.

Each takes standardised rows X (n, p) and classes y = 0, ..., c - 1, of two rows each or more. What
is tuned is tuned for the log-loss of calibrated probabilities on held-out rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

FOLDS = 5
PENALTIES = np.logspace(-1, 3, 6)
"""C of the support vector machines."""
VARIANCES = np.logspace(-1, 4, 7)
"""Prior variances of kernel logistic regression."""


def gammas(X: np.ndarray, count: int = 7) -> np.ndarray:
    """Grid of gamma in exp(-gamma |x - x'|^2), in units of one over the number of features."""
    return np.logspace(-1.75, 1, count) / X.shape[1]


def folds(y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and held-out rows; a class of two rows or more is in every training part."""
    parts = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    return list(parts.split(np.empty((len(y), 1)), y))


def mean_log_loss(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Log-loss of probabilities (n, c), clipped as the benchmark's score is."""
    return float(-np.log(np.clip(probabilities[np.arange(len(y)), y], 1e-12, None)).mean())


class Power:
    """softmax(a f) of scores f (n, c), with a by the log-loss: temperature scaling, T = 1 / a.

    A share 1 / n of each label is spread over all classes. So a is finite where all rows are right.
    """

    def __init__(self, scores: np.ndarray, y: np.ndarray):
        n, c = scores.shape
        target = (1 - 1 / n) * np.eye(c)[y] + 1 / (n * c)
        linear, centred = (target * scores).sum(1).mean(), scores - scores.max(1, keepdims=True)
        top = scores.max(1).mean()

        def loss(log_power: float) -> float:
            a = np.exp(log_power)
            return np.log(np.exp(a * centred).sum(1)).mean() + a * (top - linear)

        self.power = np.exp(minimize_scalar(loss, bounds=(-8, 8), method="bounded").x)

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        return softmax(self.power * scores, 1)


# Support vector machines


class Shape(NamedTuple):
    """How a multiclass machine is made of binary ones."""

    decisions: Callable  # (C, Gram matrix, y, Gram matrix of new rows) -> (m, number of machines)
    scores: Callable  # (decisions, number of classes) -> (m, c), for temperature scaling
    platt: Callable  # (decisions, y) -> function from decisions to probabilities


def pairs(c: int) -> list[tuple[int, int]]:
    return list(combinations(range(c), 2))


def ovo_decisions(C: float, gram: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Decision values of all pairs i < j (m, c (c - 1) / 2), positive for class i."""
    machine = SVC(C=C, kernel="precomputed", decision_function_shape="ovo").fit(gram, y)
    values = machine.decision_function(new)
    return -values[:, None] if values.ndim == 1 else values


def ovr_decisions(C: float, gram: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Decision values of each class against the rest (m, c)."""
    c = y.max() + 1
    if c == 2:
        return ovo_decisions(C, gram, y, new) * [1, -1]
    machines = (SVC(C=C, kernel="precomputed").fit(gram, y == k) for k in range(c))
    return np.stack([machine.decision_function(new) for machine in machines], axis=1)


def ovo_scores(decisions: np.ndarray, c: int) -> np.ndarray:
    """Sums over the opponents of a class, of decision values clipped to the margins (m, c).

    Their temperature-scaled log-loss is lower than that of votes, as scikit-learn counts them.
    """
    scores = np.zeros((len(decisions), c))
    for d, (i, j) in zip(np.clip(decisions, -1, 1).T, pairs(c), strict=True):
        scores[:, i] += d
        scores[:, j] -= d
    return scores


def sigmoid(decisions: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """Platt's sigmoid: P(positive) = expit(a d + b), fitted by Newton's method to his targets."""
    above, below = positive.sum(), (~positive).sum()
    target = np.where(positive, (above + 1) / (above + 2), 1 / (below + 2))
    design = np.stack([decisions, np.ones_like(decisions)], 1)
    w = np.array([0.0, np.log((above + 1) / (below + 1))])

    def loss(w: np.ndarray) -> float:
        return np.sum(np.logaddexp(0, design @ w) - target * (design @ w))

    for _ in range(50):
        p = expit(design @ w)
        gradient = design.T @ (p - target)
        curvature = design.T @ (design * (p * (1 - p))[:, None]) + 1e-10 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while loss(w - size * step) > loss(w) and size > 1e-8:
            size /= 2
        w = w - size * step
        if np.abs(gradient @ step) < 1e-8:
            break
    return w[0], w[1]


def coupled(r: np.ndarray) -> np.ndarray:
    """Class probabilities p (m, c) from those of pairs, r_ij = P(i | i or j), shape (m, c, c).

    Wu, Lin and Weng (2004), method 2: they minimise sum_ij (r_ji p_i - r_ij p_j)^2, sum_i p_i = 1.
    """
    c = r.shape[1]
    Q = -r.transpose(0, 2, 1) * r
    Q[:, np.arange(c), np.arange(c)] = (r**2).sum(1)  # the diagonal of r is zero
    p = np.linalg.solve(Q + 1e-10 * np.eye(c), np.ones((len(r), c, 1)))[..., 0]
    p = np.clip(p, 0, None)
    return p / p.sum(1, keepdims=True)


def ovo_platt(decisions: np.ndarray, y: np.ndarray) -> Callable:
    """Platt's sigmoid for each pair of classes, and pairwise coupling."""
    c = y.max() + 1
    curves = []
    for d, (i, j) in zip(decisions.T, pairs(c), strict=True):
        of_pair = (y == i) | (y == j)
        curves.append(sigmoid(d[of_pair], y[of_pair] == i))

    def probabilities(decisions: np.ndarray) -> np.ndarray:
        r = np.zeros((len(decisions), c, c))
        for d, (a, b), (i, j) in zip(decisions.T, curves, pairs(c), strict=True):
            r[:, i, j] = np.clip(expit(a * d + b), 1e-7, 1 - 1e-7)
            r[:, j, i] = 1 - r[:, i, j]
        return coupled(r)

    return probabilities


def ovr_platt(decisions: np.ndarray, y: np.ndarray) -> Callable:
    """Platt's sigmoid for each class against the rest, normalised."""
    curves = np.array([sigmoid(d, y == k) for k, d in enumerate(decisions.T)])

    def probabilities(decisions: np.ndarray) -> np.ndarray:
        p = np.clip(expit(decisions * curves[:, 0] + curves[:, 1]), 1e-12, None)
        return p / p.sum(1, keepdims=True)

    return probabilities


SHAPES = {
    "ovo": Shape(ovo_decisions, ovo_scores, ovo_platt),
    "ovr": Shape(ovr_decisions, lambda decisions, c: decisions, ovr_platt),
}


@lru_cache(maxsize=4)
def held_out_decisions(
    shape: str, rows: bytes, labels: bytes, size: int
) -> tuple[float, dict[tuple[float, float], np.ndarray]]:
    """Seconds spent, and held-out decision values for each (C, gamma), for both calibrations."""
    began = time.perf_counter()
    y = np.frombuffer(labels, np.int64)
    X = np.frombuffer(rows).reshape(len(y), size)
    parts = folds(y)
    found = {}
    for gamma in gammas(X):
        gram = rbf_kernel(X, gamma=gamma)
        for C in PENALTIES:
            values = [
                SHAPES[shape].decisions(C, gram[np.ix_(a, a)], y[a], gram[np.ix_(b, a)])
                for a, b in parts
            ]
            decisions = np.empty((len(y), values[0].shape[1]))
            decisions[np.concatenate([b for _, b in parts])] = np.concatenate(values)
            found[C, gamma] = decisions
    return time.perf_counter() - began, found


class CalibratedSVC(BaseEstimator):
    """SVC with (C, gamma) by 5-fold cross-validation of the log-loss of calibrated probabilities.

    Temperature scaling and Platt's sigmoids are fitted to held-out decision values.
    ``predict_proba`` trains the machine on all rows, which takes little time. ``saved_seconds_`` is
    the time saved where the decision values were there already.
    """

    def __init__(self, shape: str = "ovo", calibration: str = "temperature"):
        self.shape = shape
        self.calibration = calibration

    def fit(self, X: np.ndarray, y: np.ndarray) -> CalibratedSVC:
        began = time.perf_counter()
        X, y = np.ascontiguousarray(X, float), np.asarray(y, np.int64)
        seconds, values = held_out_decisions(self.shape, X.tobytes(), y.tobytes(), X.shape[1])
        self.saved_seconds_ = seconds - (time.perf_counter() - began)
        self.classes_ = np.unique(y)
        losses = {}
        for setting, decisions in values.items():
            curve = self._calibrated(decisions, y)
            losses[setting] = (mean_log_loss(curve(decisions), y), curve)
        self.C_, self.gamma_ = min(losses, key=lambda setting: losses[setting][0])
        self.loss_, self.curve_ = losses[self.C_, self.gamma_]
        self.X_, self.y_, self.gram_ = X, y, rbf_kernel(X, gamma=self.gamma_)
        return self

    def _calibrated(self, decisions: np.ndarray, y: np.ndarray) -> Callable:
        shape, c = SHAPES[self.shape], y.max() + 1
        if self.calibration == "platt":
            return shape.platt(decisions, y)
        power = Power(shape.scores(decisions, c), y)
        return lambda decisions: power(shape.scores(decisions, c))

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        new = rbf_kernel(X, self.X_, gamma=self.gamma_)
        return self.curve_(SHAPES[self.shape].decisions(self.C_, self.gram_, self.y_, new))


# Kernel logistic regression and kernel least squares


def gram_matrix(X: np.ndarray, Z: np.ndarray, gamma: float) -> np.ndarray:
    """Gaussian kernel and the constant 1, which is an intercept (n, m)."""
    return 1 + rbf_kernel(X, Z, gamma=gamma)


Setting = tuple[float, float, np.ndarray]
"""gamma, another penalty, and scores of held-out rows (n, c) under them."""


class Chosen(NamedTuple):
    """A setting of a kernel method, and the log-loss of its calibrated held-out scores."""

    loss: float
    gamma: float
    penalty: float
    power: Power


def chosen(settings: Iterable[Setting], y: np.ndarray) -> Chosen:
    """Return the setting whose scores have the lowest log-loss once calibrated."""
    tried = []
    for gamma, penalty, f in settings:
        power = Power(f, y)
        tried.append(Chosen(mean_log_loss(power(f), y), gamma, penalty, power))
    return min(tried, key=lambda each: each.loss)


def spectral_basis(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """B (n, r) with B B' = gram up to rounding, and A (n, r) with gram A = B."""
    values, vectors = eigh(gram)
    kept = values > 1e-6
    root = np.sqrt(values[kept])
    return vectors[:, kept] * root, vectors[:, kept] / root


def softmax_mode(
    basis: np.ndarray, y: np.ndarray, variance: float, start: np.ndarray, tol: float
) -> np.ndarray:
    """Weights w (r, c) that minimise -sum_i log softmax(B w)_{i, y_i} + |w|^2 / (2 variance)."""
    one_hot = np.eye(start.shape[1])[y]
    # B'B is diagonal: in this unit the problem is better conditioned.
    unit = 1 / np.sqrt((basis**2).sum(0) / 8 + 1 / variance)[:, None]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = unit * flat.reshape(start.shape)
        log_p = log_softmax(basis @ w, 1)
        gradient = basis.T @ (np.exp(log_p) - one_hot) + w / variance
        return -(log_p * one_hot).sum() + (w**2).sum() / (2 * variance), (unit * gradient).ravel()

    options = {"maxiter": 1000, "maxfun": 2000, "ftol": tol, "gtol": 1e-5}
    found = minimize(loss, (start / unit).ravel(), jac=True, method="L-BFGS-B", options=options)
    return unit * found.x.reshape(start.shape)


def held_out_scores(X: np.ndarray, y: np.ndarray) -> Iterator[Setting]:
    """Yield settings (gamma, v) of kernel logistic regression, and held-out scores of its modes."""
    c = y.max() + 1
    for gamma in gammas(X):
        gram = gram_matrix(X, X, gamma)
        scores = np.empty((len(VARIANCES), len(y), c))
        for a, b in folds(y):
            basis, dual = spectral_basis(gram[np.ix_(a, a)])
            new, w = gram[np.ix_(b, a)] @ dual, np.zeros((basis.shape[1], c))
            for k, variance in enumerate(VARIANCES):
                w = softmax_mode(basis, y[a], variance, w, tol=1e-4)
                scores[k, b] = new @ w
        for variance, f in zip(VARIANCES, scores, strict=True):
            yield gamma, variance, f


class KernelLogistic(BaseEstimator):
    """Mode of softmax regression under a Gaussian process prior with kernel v (k(x, x') + 1).

    gamma and v by 5-fold cross-validation of the log-loss of softmax(a f), with a fitted to the
    held-out scores.
    """

    def fit(self, X: np.ndarray, y: np.ndarray) -> KernelLogistic:
        self.classes_ = np.unique(y)
        self.chosen_ = chosen(held_out_scores(X, y), y)
        basis, dual = spectral_basis(gram_matrix(X, X, self.chosen_.gamma))
        start = np.zeros((basis.shape[1], len(self.classes_)))
        self.X_ = X
        self.dual_ = dual @ softmax_mode(basis, y, self.chosen_.penalty, start, tol=1e-9)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.chosen_.power(gram_matrix(X, self.X_, self.chosen_.gamma) @ self.dual_)


def left_out_scores(X: np.ndarray, codes: np.ndarray) -> Iterator[Setting]:
    """Yield settings (gamma, ridge) of least squares, and leave-one-out scores of codes y (n, c).

    They have a closed form: y - (y - f) / (1 - diag H), f = H y, H = K (K + ridge I)^-1.
    """
    for gamma in gammas(X, 12):
        values, vectors = eigh(gram_matrix(X, X, gamma))
        values, projected = np.clip(values, 0, None), vectors.T @ codes
        for ridge in np.logspace(-5, 2, 15):
            shrunk = values / (values + ridge)
            fit, leverage = vectors @ (shrunk[:, None] * projected), vectors**2 @ shrunk
            yield gamma, ridge, codes - (codes - fit) / (1 - leverage)[:, None]


class KernelLeastSquares(BaseEstimator):
    """Ridge regression of the codes e_y - 1/c on the kernel k(x, x') + 1, and softmax(a f) of it.

    gamma, the ridge and a by the log-loss of leave-one-out scores.
    """

    def fit(self, X: np.ndarray, y: np.ndarray) -> KernelLeastSquares:
        self.classes_ = np.unique(y)
        codes = np.eye(len(self.classes_))[y] - 1 / len(self.classes_)
        self.chosen_ = chosen(left_out_scores(X, codes), y)
        gram = gram_matrix(X, X, self.chosen_.gamma)
        self.X_ = X
        self.dual_ = np.linalg.solve(gram + self.chosen_.penalty * np.eye(len(y)), codes)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.chosen_.power(gram_matrix(X, self.X_, self.chosen_.gamma) @ self.dual_)


# Others


class Logistic(BaseEstimator):
    """Multinomial logistic regression, its penalty by 5-fold cross-validation of the log-loss."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Logistic:
        self.classes_ = np.unique(y)
        penalties = np.logspace(-3, 3, 10)
        self.model_ = LogisticRegressionCV(
            Cs=penalties, cv=folds(y), scoring="neg_log_loss", max_iter=2000
        ).fit(X, y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict_proba(X)


def gaussian_process(seed: int) -> GaussianProcessClassifier:
    """scikit-learn's, one against the rest, with a scaled RBF kernel by marginal likelihood."""
    kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(3.0, (1e-1, 1e3))
    return GaussianProcessClassifier(kernel, random_state=seed)


def catboost(seed: int):
    """CatBoost with its default settings, on one core."""
    from catboost import CatBoostClassifier  # optional: extra bench

    return CatBoostClassifier(
        random_seed=seed, thread_count=1, verbose=False, allow_writing_files=False
    )


BUILDERS: dict[str, Callable] = {
    "logistic": lambda seed: Logistic(),
    "kernel least squares": lambda seed: KernelLeastSquares(),
    "SVC ovo temperature": lambda seed: CalibratedSVC("ovo", "temperature"),
    "SVC ovo Platt": lambda seed: CalibratedSVC("ovo", "platt"),
    "SVC ovr temperature": lambda seed: CalibratedSVC("ovr", "temperature"),
    "SVC ovr Platt": lambda seed: CalibratedSVC("ovr", "platt"),
    "kernel logistic mode": lambda seed: KernelLogistic(),
    "CatBoost": catboost,
    "GP classifier": gaussian_process,
}


def rival(kind: str, seed: int):
    """Return a rival of raw rows: it standardises them first."""
    return make_pipeline(StandardScaler(), BUILDERS[kind](seed))
