"""Cross-validation: the lengthscale of a grid that predicts held-out labels best.

A cell is one posterior run: at one lengthscale, on the rows outside one fold. Cells of one shape
share one compiled program and run as parallel threads, or wherever joblib is told to run them. The
cheap criterion ``"loo"`` needs one run on all rows for each lengthscale
(:mod:`bmsvm.inference.loo`).
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
from sklearn.model_selection import StratifiedKFold, check_cv
from tqdm.auto import tqdm

from bmsvm import kernels
from bmsvm._validation import (
    check_choice,
    check_count,
    check_rows_and_labels,
    positive_numbers,
)
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.loo import leave_one_out
from bmsvm.inference.predict import Features, class_probabilities, features_at
from bmsvm.inference.run import for_pickling, run_chains, unpickled
from bmsvm.models.hyperparameters import PAPER, Hyperparameters
from bmsvm.models.problem import Problem, prepare
from bmsvm.models.regram import with_gram

__all__ = ["CrossValidation", "Fold", "cross_validate", "default_grid", "make_folds"]

CRITERIA = ("log_loss", "error", "loo")

SMALLEST_PROBABILITY = 1e-12
"""Floor of a probability whose logarithm is taken."""

UNTRUSTED_K = 0.7
"""Pareto's k above which a leave-one-out prediction should not be trusted."""

UNTRUSTED_SHARE = 0.1
"""Share of such rows at which a warning is given."""


@dataclass(frozen=True)
class CrossValidation:
    """Scores of each lengthscale of a grid. Cells that were not run are NaN."""

    grid: np.ndarray
    """Lengthscales, shape (G,), or (G, p) where each is one per feature."""
    log_loss: np.ndarray
    """Mean minus log probability of the held-out labels, shape (G, folds)."""
    error: np.ndarray
    """Share of held-out labels that are not the most probable class, shape (G, folds)."""
    loo: np.ndarray
    """Leave-one-out log probability of each label, shape (G, n)."""
    pareto_k: np.ndarray
    """Pareto's k of each leave-one-out prediction, shape (G, n)."""
    criterion: str
    """``"log_loss"``, ``"error"`` or ``"loo"``: what :attr:`best` minimises."""
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

    @property
    def best(self) -> int:
        """Number of the lengthscale of smallest mean loss; those with missing cells are out."""
        mean = self.mean()
        if np.all(np.isnan(mean)):
            raise ValueError("no lengthscale of the grid is finished: pass this as resume")
        return int(np.nanargmin(mean))

    @property
    def lengthscale(self) -> Any:
        """The lengthscale of smallest mean loss: a number, or one per feature, shape (p,)."""
        value = self.grid[self.best]
        return float(value) if value.ndim == 0 else value


class Fold(NamedTuple):
    """Numbers of the rows to learn from, and of the rows to test."""

    train: np.ndarray
    test: np.ndarray


class _Cell(NamedTuple):
    """A run to be made: number of the lengthscale, and of the fold, or None for all rows."""

    value: int
    fold: int | None


class _Scores(NamedTuple):
    """What is filled in; see :class:`CrossValidation`."""

    log_loss: np.ndarray
    error: np.ndarray
    loo: np.ndarray
    pareto_k: np.ndarray


def _empty(n_values: int, n_folds: int, n_rows: int) -> _Scores:
    shapes = [(n_values, n_folds)] * 2 + [(n_values, n_rows)] * 2
    return _Scores(*(np.full(shape, np.nan) for shape in shapes))


def _resumed(resume: CrossValidation, values: np.ndarray, like: _Scores) -> _Scores:
    """Copy the scores that are there already, if they are of the same runs."""
    scores = _Scores(*(getattr(resume, name).copy() for name in _Scores._fields))
    same = [old.shape == new.shape for old, new in zip(scores, like, strict=True)]
    if not np.array_equal(resume.grid, values) or not all(same):
        raise ValueError(
            "resume must have the same grid, folds and rows, and so scores of shapes "
            f"{like.log_loss.shape} and {like.loo.shape}; it has {scores.log_loss.shape} and "
            f"{scores.loo.shape}"
        )
    return scores


def default_grid(rows: ArrayLike) -> np.ndarray:
    """Thirteen lengthscales around the median distance of rows (n, p), from 1/8 to 8 times it."""
    return kernels.median_distance(rows) * np.geomspace(1 / 8, 8, 13)


def _check_grid(grid: ArrayLike | None, rows: np.ndarray) -> np.ndarray:
    if grid is None:
        return default_grid(rows)
    values = positive_numbers(grid)
    if values is None or values.shape[1:] not in ((), rows.shape[1:]) or values.ndim == 0:
        raise ValueError(
            "grid must be positive numbers, shape (G,), or (G, p) for one per feature, of which X "
            f"has {rows.shape[1]}; got {grid!r}"
        )
    return values


def _equal_sized(folds: list[Fold], labels: np.ndarray) -> list[Fold]:
    """Drop the few training rows that keep folds from having one shape, of the largest class."""
    size = min(len(fold.train) for fold in folds)

    def cut(train: np.ndarray) -> np.ndarray:
        largest = np.bincount(labels[train]).argmax()
        dropped = np.flatnonzero(labels[train] == largest)[: len(train) - size]
        return np.delete(train, dropped)

    return [Fold(cut(fold.train), fold.test) for fold in folds]


def make_folds(
    folds: Any,
    rows: np.ndarray,
    classes: np.ndarray,
    labels: np.ndarray,
    seed: int,
    *,
    equal: bool = True,
) -> list[Fold]:
    """Rows to learn from and rows to test, of each fold.

    Parameters
    ----------
    folds
        Number of folds, a scikit-learn splitter, or pairs (train, test) of row numbers.
    rows, classes, labels
        Rows (n, p), names of the classes (c,) and class index of each row (n,).
    seed
        Of the shuffling, where ``folds`` is a number.
    equal
        Whether to drop training rows where ``folds`` is a number, so that all have as many.
    """
    n = len(rows)
    if isinstance(folds, int | np.integer) and not isinstance(folds, bool):
        check_count("folds", folds, smallest=2)
        counts = np.bincount(labels)
        if counts.max() < folds:
            raise ValueError(
                f"folds must be at most the rows of the largest class, {counts.max()}; got {folds}"
            )
        for name, count in zip(classes.tolist(), counts, strict=True):
            if count >= folds:
                continue
            warnings.warn(
                f"class {name!r} has {count} rows, fewer than the {folds} folds: some folds do not "
                f"test it{', and one is fitted without it' if count == 1 else ''}",
                stacklevel=3,
            )
        splitter = StratifiedKFold(int(folds), shuffle=True, random_state=seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            made = [Fold(*pair) for pair in splitter.split(rows, labels)]
        return _equal_sized(made, labels) if equal else made
    try:
        pairs = list(check_cv(folds, labels, classifier=True).split(rows, labels))
        made = [Fold(*(np.arange(n)[np.asarray(part)] for part in pair)) for pair in pairs]
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError(
            "folds must be an integer, a scikit-learn splitter, or pairs (train, test) of row "
            f"numbers below {n}; got {folds!r}: {error}"
        ) from error
    for number, fold in enumerate(made):
        if len(fold.train) < 2 or len(fold.test) < 1:
            raise ValueError(
                f"folds: fold {number} must have at least 2 rows to learn from and 1 to test; "
                f"it has {len(fold.train)} and {len(fold.test)}"
            )
    if not made:
        raise ValueError(f"folds must have at least one pair (train, test); got {folds!r}")
    return made


@jax.jit
def _predictive(
    key: jax.Array, draws: dict[str, jax.Array], features: Features, problem: Problem
) -> jax.Array:
    """Mean class probabilities at new rows over draws, shape (m, c)."""
    return class_probabilities(key, draws, features, problem).mean(0)


def _padded(features: Features, size: int) -> Features:
    """Extend features to ``size`` rows, the last of them zero, for test folds of one shape."""
    missing = size - features.remainder.shape[0]
    return Features(
        jnp.pad(features.inside, ((0, missing), (0, 0))), jnp.pad(features.remainder, (0, missing))
    )


@dataclass(frozen=True)
class _Task:
    """All that a cell needs besides its number."""

    rows: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    whole: Problem
    kernel: str
    grid: np.ndarray
    folds: list[Fold]
    sampler: BMSVMGibbs
    rng_key: jax.Array
    num_warmup: int
    num_samples: int
    num_chains: int
    double: bool

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "whole": for_pickling(self.whole)}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update({**fields, "whole": unpickled(fields["whole"])})

    def run(self, cell: _Cell) -> tuple[_Cell, Any]:
        """Score one cell, in the precision of the caller, which threads do not inherit."""
        with jax.enable_x64(self.double):
            return self._run(cell)

    def _run(self, cell: _Cell) -> tuple[_Cell, Any]:
        """Score one cell: (log-loss, error) of a fold, (log scores, Pareto's k) of all rows."""
        fold_number = len(self.folds) if cell.fold is None else cell.fold
        key = jax.random.fold_in(jax.random.fold_in(self.rng_key, cell.value), fold_number)
        key_run, key_predict = jax.random.split(key)
        everything = np.arange(len(self.rows))
        train = everything if cell.fold is None else self.folds[cell.fold].train
        theta = self.grid[cell.value]
        gram = kernels.gram_of(self.kernel, self.rows[train], theta)
        problem = with_gram(self.whole, gram, train)
        run = run_chains(
            self.sampler,
            key_run,
            problem,
            num_warmup=self.num_warmup,
            num_samples=self.num_samples,
            num_chains=self.num_chains,
            progress_bar=False,
        )
        if run.interrupted:
            raise KeyboardInterrupt
        draws = {
            name: jnp.asarray(run.samples[name].reshape(-1, *run.samples[name].shape[2:]))
            for name in ("scores", "noise_variance", "precision")
        }
        if cell.fold is None:
            found = leave_one_out(draws, problem)
            return cell, (found.log_score, found.pareto_k)
        test = self.folds[cell.fold].test
        covariance = kernels.STATIONARY[self.kernel](theta)
        features = features_at(covariance, self.rows[test], self.rows[train], problem.factor)
        size = max(len(fold.test) for fold in self.folds)
        probabilities = np.asarray(
            _predictive(key_predict, draws, _padded(features, size), problem)
        )[: len(test)]
        truth = self.labels[test]
        own = np.maximum(probabilities[np.arange(len(test)), truth], SMALLEST_PROBABILITY)
        wrong = probabilities.argmax(1) != truth
        weights = self.weights[test]
        return cell, (np.average(-np.log(own), weights=weights), np.average(wrong, weights=weights))


def _run_all(task: _Task, cells: list[_Cell], n_jobs: int | None) -> Iterator[tuple[_Cell, Any]]:
    """Run the first cell, which compiles, and then the others side by side.

    As threads, unless :func:`joblib.parallel_config` says otherwise.
    """
    if not cells:
        return
    yield task.run(cells[0])
    parallel = joblib.Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator_unordered")
    yield from parallel(joblib.delayed(task.run)(cell) for cell in cells[1:])


def cross_validate(
    X: ArrayLike,
    y: ArrayLike,
    *,
    rng_key: jax.Array,
    grid: ArrayLike | None = None,
    folds: Any = 5,
    criterion: str = "log_loss",
    loo: bool = False,
    kernel: str = "gaussian",
    coupling: str = "sum_to_zero",
    likelihood: str = "hinge",
    hyperparameters: Hyperparameters = PAPER,
    row_weights: ArrayLike | None = None,
    preset: str = "default",
    num_warmup: int = 200,
    num_samples: int = 150,
    num_chains: int = 4,
    n_jobs: int | None = None,
    progress_bar: bool = True,
    resume: CrossValidation | None = None,
) -> CrossValidation:
    """Score each lengthscale of a grid by predictions of held-out rows.

    An interruption (Ctrl-C) returns the cells that are finished, with a warning; pass the result
    as ``resume``, with the same arguments, and only the others are run. Where no cell is finished
    the interruption is passed on.

    Parameters
    ----------
    X, y
        Rows (n, p) and labels (n,).
    rng_key
        Random key, from which each cell's own is made.
    grid
        Lengthscales, shape (G,), or (G, p) for one per feature. Default: 13 values from 1/8 to 8
        times the median distance between rows.
    folds
        Number of folds, which are then stratified and shuffled, and of equal size but for a
        remainder of fewer than ``folds`` rows, which some folds do not learn from; or a
        scikit-learn splitter; or pairs (train, test) of row numbers.
    criterion
        What the best lengthscale minimises: ``"log_loss"`` or ``"error"`` over the folds, or
        ``"loo"``, the leave-one-out log-loss from one run on all rows, without folds.
    loo
        Whether to compute the leave-one-out scores beside those of the folds.
    kernel
        ``"gaussian"``, ``"matern32"`` or ``"matern52"``.
    coupling, likelihood, hyperparameters, row_weights
        The model; see :func:`bmsvm.prepare`. Held-out rows count by their weights too, but not in
        ``loo``.
    preset
        The sampler; see :class:`bmsvm.BMSVMGibbs`.
    num_warmup, num_samples, num_chains
        Length of each run; see :func:`bmsvm.run_chains`.
    n_jobs
        Runs at one time, as threads: joblib's meaning, None for one and -1 for all processors.
        Within ``joblib.parallel_config(backend="dask")``, or another backend, they run there.
    progress_bar
        Whether to show progress.
    resume
        An interrupted result to be completed.
    """
    check_choice("criterion", criterion, CRITERIA)
    check_choice("kernel", kernel, kernels.STATIONARY)
    if n_jobs is not None and (not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
        raise ValueError(f"n_jobs must be None or an integer other than 0; got {n_jobs!r}")
    if resume is not None and not isinstance(resume, CrossValidation):
        raise ValueError(f"resume must be what cross_validate returned; got {resume!r}")
    rows, classes, labels = check_rows_and_labels(X, y)
    values = _check_grid(grid, rows)
    made: list[Fold] = []
    if criterion != "loo":
        seed = int(jax.random.bits(jax.random.fold_in(rng_key, len(values)), dtype=jnp.uint32))
        made = make_folds(folds, rows, classes, labels, seed)
    whole = prepare(
        X,
        y,
        kernel=kernel,
        lengthscale=values[0],
        coupling=coupling,
        likelihood=likelihood,
        hyperparameters=hyperparameters,
        row_weights=row_weights,
    )
    weights = np.ones(len(rows)) if row_weights is None else np.asarray(row_weights, np.float64)
    for number, fold in enumerate(made):
        if not np.any(weights[fold.test]):
            raise ValueError(f"row_weights must not all be zero in a fold; they are in {number}")
    task = _Task(
        rows=rows,
        labels=labels,
        weights=weights,
        whole=whole,
        kernel=kernel,
        grid=values,
        folds=made,
        sampler=BMSVMGibbs(likelihood=likelihood, preset=preset),
        rng_key=rng_key,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        double=jnp.result_type(float) == jnp.float64,
    )
    scores = _empty(len(values), len(made), len(rows))
    if resume is not None:
        scores = _resumed(resume, values, scores)
    cells = [_Cell(*cell) for cell in np.argwhere(np.isnan(scores.log_loss)).tolist()]
    if loo or criterion == "loo":
        cells += [_Cell(g, None) for g in np.flatnonzero(np.isnan(scores.loo[:, 0])).tolist()]
    finished, interrupted = 0, False
    with tqdm(total=len(cells), desc="cross-validation", disable=not progress_bar) as bar:
        try:
            for cell, found in _run_all(task, cells, n_jobs):
                if cell.fold is None:
                    scores.loo[cell.value], scores.pareto_k[cell.value] = found
                else:
                    scores.log_loss[cell], scores.error[cell] = found
                finished += 1
                bar.update()
        except KeyboardInterrupt:
            if finished == 0 and resume is None:
                raise
            interrupted = True
    if interrupted:
        warnings.warn(
            f"interrupted: {finished} of {len(cells)} runs were made; pass what is returned as "
            "resume for the rest",
            stacklevel=2,
        )
    result = CrossValidation(values, *scores, criterion, interrupted)
    if criterion == "loo" and not interrupted:
        _warn_of_heavy_tails(result)
    return result


def _warn_of_heavy_tails(result: CrossValidation) -> None:
    share = float(np.mean(result.pareto_k[result.best] > UNTRUSTED_K))
    if share > UNTRUSTED_SHARE:
        warnings.warn(
            f"leave-one-out predictions of {share:.0%} of the rows should not be trusted (Pareto's "
            f"k above {UNTRUSTED_K}): use folds, or more num_samples",
            stacklevel=3,
        )
