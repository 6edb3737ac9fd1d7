"""Cross-validation: the lengthscale of a grid whose posterior predicts held-out labels best.

A cell is one posterior run: at one lengthscale, on the rows outside one fold. Cells of one shape
share one compiled program and run as parallel threads, or on any joblib backend. The cheap
criterion ``"loo"`` needs one run on all rows for each lengthscale
(:mod:`bmsvm.prediction.leave_one_out`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import joblib
import numpy as np
from jax.typing import ArrayLike

from bmsvm._progress import progress
from bmsvm._validation import (
    check_choice,
    check_rows_and_labels,
    check_sweeps,
    positive_numbers,
)
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.run import run_chains
from bmsvm.inference.samplers import Sampler, as_sampler
from bmsvm.kernels.functions import Kernel, as_kernel, gram_of, median_distance
from bmsvm.models.hyperparameters import DEFAULT, Hyperparameters
from bmsvm.models.integrated import check_integrable
from bmsvm.models.prepare import prepare
from bmsvm.models.problem import Problem
from bmsvm.models.regram import with_gram
from bmsvm.posterior import Posterior
from bmsvm.selection.base import Method, Selection
from bmsvm.selection.folds import Fold, make_folds

__all__ = ["GridCV", "GridSelection", "default_grid"]

CRITERIA = ("log_loss", "error", "loo")

SMALLEST_PROBABILITY = 1e-12
"""Floor of a probability whose logarithm is taken."""

UNTRUSTED_K = 0.7
"""Pareto k above which a leave-one-out prediction should not be trusted."""

UNTRUSTED_SHARE = 0.1
"""Share of such rows at which a warning is given."""


@dataclass(frozen=True)
class GridSelection(Selection):
    """Scores of each lengthscale of a grid. Cells that were not run are NaN."""

    grid: np.ndarray
    """Lengthscales, shape (G,), or (G, p) for one per feature."""
    log_loss: np.ndarray
    """Mean minus log probability of the held-out labels, shape (G, folds)."""
    error: np.ndarray
    """Share of held-out labels that are not the most probable class, shape (G, folds)."""
    loo: np.ndarray
    """Leave-one-out log probability of each label, shape (G, n)."""
    pareto_k: np.ndarray
    """Pareto k of each leave-one-out prediction, shape (G, n)."""
    criterion: str
    """``"log_loss"``, ``"error"`` or ``"loo"``: what the chosen lengthscale minimises."""
    interrupted: bool = False
    """Whether cells are missing because the run was interrupted."""

    def losses(self, criterion: str | None = None) -> np.ndarray:
        """Losses by lengthscale and fold, (G, folds), or by row under ``"loo"``, (G, n)."""
        criterion = self.criterion if criterion is None else criterion
        check_choice("criterion", criterion, CRITERIA)
        return -self.loo if criterion == "loo" else getattr(self, criterion)

    def mean(self, criterion: str | None = None) -> np.ndarray:
        """Mean loss of each lengthscale, shape (G,)."""
        losses = self.losses(criterion)
        return losses.mean(1) if losses.shape[1] else np.full(len(losses), np.nan)

    def standard_error(self, criterion: str | None = None) -> np.ndarray:
        """Return the standard error of the mean loss over folds, or rows under ``"loo"``, (G,)."""
        losses = self.losses(criterion)
        if losses.shape[1] < 2:
            return np.full(len(losses), np.nan)
        return losses.std(1, ddof=1) / np.sqrt(losses.shape[1])


class _Cell(NamedTuple):
    """A run to be made: index of the lengthscale, and of the fold, or None for all rows."""

    value: int
    fold: int | None


class _Scores(NamedTuple):
    """Fields of :class:`GridSelection` that cells fill in."""

    log_loss: np.ndarray
    error: np.ndarray
    loo: np.ndarray
    pareto_k: np.ndarray

    @classmethod
    def empty(cls, n_values: int, n_folds: int, n_rows: int) -> _Scores:
        """Return scores of which none is known."""
        shapes = [(n_values, n_folds)] * 2 + [(n_values, n_rows)] * 2
        return cls(*(np.full(shape, np.nan) for shape in shapes))


def default_grid(rows: ArrayLike) -> np.ndarray:
    """Thirteen lengthscales around the median distance of rows (n, p), from 1/8 to 8 times it."""
    return median_distance(rows) * np.geomspace(1 / 8, 8, 13)


@dataclass(frozen=True)
class _Task:
    """All that a cell needs besides its indices."""

    rows: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    whole: Problem
    kernel: Kernel
    grid: np.ndarray
    folds: list[Fold]
    how: GridCV
    rng_key: jax.Array
    double: bool

    def run(self, cell: _Cell) -> tuple[_Cell, Any]:
        """Score one cell, in the precision of the caller, which threads do not inherit."""
        with jax.enable_x64(self.double):
            return cell, self._scores(cell)

    def _scores(self, cell: _Cell) -> tuple[Any, Any]:
        """(log-loss, error) of a fold, or (log scores, Pareto k) of all rows."""
        number = len(self.folds) if cell.fold is None else cell.fold
        key = jax.random.fold_in(jax.random.fold_in(self.rng_key, cell.value), number)
        everything = np.arange(len(self.rows))
        train = everything if cell.fold is None else self.folds[cell.fold].train
        theta = self.grid[cell.value]
        gram = gram_of(self.kernel, self.rows[train], theta)
        problem = with_gram(self.whole, gram, train)
        run = run_chains(
            BMSVMGibbs(sampler=self.how.sampler),
            key,
            problem,
            num_warmup=self.how.num_warmup,
            num_samples=self.how.num_samples,
            num_chains=self.how.num_chains,
        )
        if run.interrupted:
            raise KeyboardInterrupt
        posterior = Posterior(
            run.samples, problem, self.rows[train], self.kernel, theta, seed=cell.value
        )
        if cell.fold is None:
            found = posterior.leave_one_out()
            return found.log_score, found.pareto_k
        test = self.folds[cell.fold].test
        probabilities = posterior.probabilities(self.rows[test])
        truth, weights = self.labels[test], self.weights[test]
        own = np.maximum(probabilities[np.arange(len(test)), truth], SMALLEST_PROBABILITY)
        wrong = probabilities.argmax(1) != truth
        return np.average(-np.log(own), weights=weights), np.average(wrong, weights=weights)


def _run_all(task: _Task, cells: list[_Cell], n_jobs: int | None) -> Iterator[tuple[_Cell, Any]]:
    """Run the first cell, which compiles, and then the others in parallel.

    As threads, unless :func:`joblib.parallel_config` says otherwise.
    """
    if not cells:
        return
    yield task.run(cells[0])
    parallel = joblib.Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator_unordered")
    yield from parallel(joblib.delayed(task.run)(cell) for cell in cells[1:])


@dataclass(frozen=True, eq=False)
class GridCV(Method):
    """Choose the lengthscale of a grid by posterior predictions of held-out rows.

    Parameters
    ----------
    grid
        Lengthscales, shape (G,), or (G, p) for one per feature. Default: 13 values from 1/8 to 8
        times the median distance between rows.
    folds
        Number of folds, which are then stratified and shuffled, and of equal size but for a
        remainder of fewer than ``folds`` rows, which some folds do not train on; or a scikit-learn
        splitter; or pairs (train, test) of row indices.
    criterion
        What the chosen lengthscale minimises: ``"log_loss"`` or ``"error"`` over the folds, or
        ``"loo"``, the leave-one-out log-loss from one run on all rows, without folds.
    loo
        Whether to compute the leave-one-out scores beside those of the folds.
    sampler
        See :class:`bmsvm.BMSVMGibbs`.
    num_warmup, num_samples, num_chains
        Length of each run; see :func:`bmsvm.run_chains`.
    n_jobs
        Number of parallel runs, as threads: joblib's meaning, None for one and -1 for all
        processors. Within ``joblib.parallel_config(backend="dask")``, or another backend, they run
        there.
    """

    grid: Any = None
    folds: Any = 5
    criterion: str = "log_loss"
    loo: bool = False
    sampler: Sampler | str = "hmc"
    num_warmup: int = 200
    num_samples: int = 150
    num_chains: int = 4
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        check_choice("criterion", self.criterion, CRITERIA)
        check_sweeps("num_warmup", self.num_warmup, smallest=0)
        for name in ("num_samples", "num_chains"):
            check_sweeps(name, getattr(self, name))
        as_sampler(self.sampler)
        if self.n_jobs is not None and (
            not isinstance(self.n_jobs, int | np.integer) or self.n_jobs == 0
        ):
            raise ValueError(f"n_jobs must be None or an integer other than 0; got {self.n_jobs!r}")

    def _grid(self, rows: np.ndarray) -> np.ndarray:
        if self.grid is None:
            return default_grid(rows)
        values = positive_numbers(self.grid)
        if values is None or values.ndim == 0 or values.shape[1:] not in ((), rows.shape[1:]):
            raise ValueError(
                "grid must be positive numbers, shape (G,), or (G, p) for one per feature, of "
                f"which X has {rows.shape[1]}; got {self.grid!r}"
            )
        return values

    def check_model(self, kernel: Kernel, coupling: str, likelihood: str) -> None:
        """Raise ``ValueError`` if the criterion cannot be computed for this model."""
        super().check_model(kernel, coupling, likelihood)
        if self.loo or self.criterion == "loo":
            check_integrable("leave-one-out", coupling, likelihood)

    def select(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        rng_key: jax.Array | None = None,
        kernel: Kernel | str = "gaussian",
        coupling: str = "sum_to_zero",
        likelihood: str = "normalized",
        hyperparameters: Hyperparameters = DEFAULT,
        row_weights: ArrayLike | None = None,
        resume: GridSelection | None = None,
    ) -> GridSelection:
        """Score each lengthscale of the grid.

        An interruption (Ctrl-C) returns the cells that are finished, with a warning. Pass the
        result as ``resume``, with the same arguments, to run only the others. If no cell is
        finished the interruption is passed on. Held-out rows count by their weights, but not in
        ``loo``.
        """
        covariance = as_kernel(kernel)
        self.check_model(covariance, coupling, likelihood)
        key = jax.random.key(0) if rng_key is None else rng_key
        rows, _, labels = check_rows_and_labels(X, y)
        values = self._grid(rows)
        folds: list[Fold] = []
        if self.criterion != "loo":
            seed = int(jax.random.bits(jax.random.fold_in(key, len(values)), dtype=jnp.uint32))
            folds = make_folds(self.folds, labels, seed)
        with warnings.catch_warnings():  # the first value of a grid may be as small as it likes
            warnings.filterwarnings("ignore", message="X and lengthscale", category=UserWarning)
            whole = prepare(
                X,
                y,
                kernel=covariance,
                lengthscale=values[0],
                coupling=coupling,
                likelihood=likelihood,
                hyperparameters=hyperparameters,
                row_weights=row_weights,
            )
        weights = np.ones(len(rows)) if row_weights is None else np.asarray(row_weights, float)
        for number, fold in enumerate(folds):
            if not np.any(weights[fold.test]):
                raise ValueError(
                    f"row_weights must not all be zero in a fold; they are in {number}"
                )
        double = jnp.result_type(float) == jnp.float64
        task = _Task(rows, labels, weights, whole, covariance, values, folds, self, key, double)
        scores = _Scores.empty(len(values), len(folds), len(rows))
        if resume is not None:
            scores = _resumed(resume, values, scores)
        interrupted = self._fill(scores, task, fresh=resume is None)
        return self._result(values, scores, interrupted, hyperparameters, len(rows))

    def _fill(self, scores: _Scores, task: _Task, *, fresh: bool) -> bool:
        """Run the cells that are missing; return whether they were interrupted."""
        cells = [_Cell(*cell) for cell in np.argwhere(np.isnan(scores.log_loss)).tolist()]
        if self.loo or self.criterion == "loo":
            cells += [_Cell(g, None) for g in np.flatnonzero(np.isnan(scores.loo[:, 0])).tolist()]
        finished = 0
        with progress(len(cells), "cross-validation", unit="run") as bar:
            try:
                for cell, found in _run_all(task, cells, self.n_jobs):
                    if cell.fold is None:
                        scores.loo[cell.value], scores.pareto_k[cell.value] = found
                    else:
                        scores.log_loss[cell], scores.error[cell] = found
                    finished += 1
                    bar.update()
            except KeyboardInterrupt:
                if finished == 0 and fresh:
                    raise
                warnings.warn(
                    f"interrupted: {finished} of {len(cells)} runs were made; pass the result as "
                    "resume for the rest",
                    stacklevel=3,
                )
                return True
        return False

    def _result(
        self,
        values: np.ndarray,
        scores: _Scores,
        interrupted: bool,
        hyperparameters: Hyperparameters,
        num_rows: int,
    ) -> GridSelection:
        losses = -scores.loo if self.criterion == "loo" else getattr(scores, self.criterion)
        means = losses.mean(1)
        best = None if np.all(np.isnan(means)) else int(np.nanargmin(means))
        if self.criterion == "loo" and best is not None and not interrupted:
            share = float(np.mean(scores.pareto_k[best] > UNTRUSTED_K))
            if share > UNTRUSTED_SHARE:
                warnings.warn(
                    f"leave-one-out predictions of {share:.0%} of the rows should not be trusted "
                    f"(Pareto k above {UNTRUSTED_K}): use folds, or increase num_samples",
                    stacklevel=3,
                )
        theta: Any = None if best is None else values[best]
        if theta is not None and np.ndim(theta) == 0:
            theta = float(theta)
        return GridSelection(
            theta, hyperparameters, num_rows, values, *scores, self.criterion, interrupted
        )


def _resumed(resume: Any, values: np.ndarray, like: _Scores) -> _Scores:
    """Copy the scores that are there already, if they are of the same runs."""
    if not isinstance(resume, GridSelection):
        raise ValueError(f"resume must be an interrupted result of GridCV; got {resume!r}")
    scores = _Scores(*(getattr(resume, name).copy() for name in _Scores._fields))
    same = [old.shape == new.shape for old, new in zip(scores, like, strict=True)]
    if not np.array_equal(resume.grid, values) or not all(same):
        raise ValueError(
            "resume must have the same grid, folds and rows, and so scores of shapes "
            f"{like.log_loss.shape} and {like.loo.shape}; it has {scores.log_loss.shape} and "
            f"{scores.loo.shape}"
        )
    return scores
