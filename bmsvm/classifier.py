"""The classifier: scikit-learn's interface to the posterior."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal

import jax
import numpy as np
from jax.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bmsvm._defaults import method_of
from bmsvm._fitting import (
    Data,
    Plan,
    begin_ahead,
    calibrated,
    choose,
    plan_of,
    posterior_of,
    problem_of,
    quietly,
    sample,
)
from bmsvm._inputs import KernelInputs
from bmsvm._predicting import Predicting, Predictive
from bmsvm._progress import stages
from bmsvm._settings import check_settings
from bmsvm._threads import few_blas_threads
from bmsvm._validation import check_positive, check_sweeps
from bmsvm.convergence import Check, checks_of, diagnose, warn_of_fit, watch
from bmsvm.inference.run import Run
from bmsvm.inference.samplers import Sampler, paper_sampler
from bmsvm.kernels.functions import Kernel, KernelFn, as_kernel
from bmsvm.kernels.low_rank import Approximation, Nystrom
from bmsvm.models.hyperparameters import PAPER, Hyperparameters
from bmsvm.models.theta import Sampled
from bmsvm.notebook import NotebookRepr
from bmsvm.predictive import PredictiveDistribution
from bmsvm.scaling import Standardize
from bmsvm.selection import Method
from bmsvm.selection.relevance import relevance

__all__ = ["BMSVMClassifier"]

ROW_MULTIPLE = 32
"""Rows of weight zero fill the data up to a multiple of this, so that the folds of a
cross-validation, or data that grow a little, share one compiled program; not for ``Paper``."""


SHORTEST = 1e-6
"""Seconds that chains have if choosing the lengthscale took all the time."""


class BMSVMClassifier(NotebookRepr, KernelInputs, Predicting, ClassifierMixin, BaseEstimator):
    """Bayesian multicategory support vector machine, for scikit-learn.

    ``fit`` draws from the posterior; every prediction is an average over the draws.

    Parameters
    ----------
    likelihood
        ``"normalized"`` (21), ``"hinge"`` (11), or ``"squared"``, the least-squares
        SVM, whose posterior needs no chain. The hinge is not a distribution of the labels, and says
        too little with many classes. ``"auto"``: ``"normalized"`` while ``n^2 (c - 1)`` is at most
        two million (816 rows of four classes); beyond, where chains would take long, ``"squared"``,
        pooled with a mode of logistic regression. It stays ``"normalized"`` if a sampler,
        hyperparameters, or a way to choose or sample the lengthscale is given.
    coupling
        ``"sum_to_zero"``, or ``"independent"`` as printed in the paper.
    kernel
        ``"gaussian"`` (or ``"rbf"``), ``"laplacian"``, ``"matern32"``, ``"matern52"``,
        ``"linear"``, ``"poly"``, ``"precomputed"``; an object of :mod:`bmsvm.kernels`; or a
        callable ``kernel(X1, X2) -> (n1, n2)`` such as a tinygp kernel. ``"auto"``: Gaussian or
        Laplacian, whichever predicts rows left out better by least squares, if the lengthscale is
        chosen from the data too; else Gaussian.
    lengthscale
        theta of a stationary kernel, in units of the standardised features: a number, one per
        feature, or a way to choose it from the data before sampling (``"mode-cv"`` or
        :class:`bmsvm.ModeCV`, which chooses tau too; ``"squares-cv"`` or
        :class:`bmsvm.SquaresCV`). ``"sample"`` or :class:`bmsvm.Sampled` makes it a parameter.
        ``"auto"``: ``"mode-cv"`` for ``"normalized"`` and the default hyperparameters, else
        ``"squares-cv"``.
    hyperparameters
        Constants of the other priors. None: ``Hyperparameters()``; :data:`bmsvm.PAPER` are the
        paper's. With ``"mode-cv"`` and an exact Gram matrix the prior of tau is a narrow one around
        the tau that was chosen.
    approximation
        ``"exact"``; :class:`bmsvm.Nystrom` (``"nystrom"``) or :class:`bmsvm.Fourier`
        (``"fourier"``), Gram matrices of low rank, in time and memory linear in the rows.
        ``"auto"``: Nystrom beyond 2000 rows if the model allows it, else exact.
    sampler
        ``"auto"``, ``"hmc"``, ``"gibbs"``, ``"paper"``, ``"table"``, or an object such as
        :class:`bmsvm.HMC`. ``"auto"``: ``"table"`` under ``"squared"``, else ``"hmc"``.
    num_chains, num_warmup, num_samples
        Number of chains, sweeps in which the sampler tunes itself, and largest number of draws of
        each chain. Chains end earlier if their draws are enough
        (:func:`bmsvm.convergence.enough_draws`); those of :class:`bmsvm.Paper` do not.
        ``num_warmup=None`` is 150, or 75 if ``"mode-cv"`` has chosen tau.
    standardize
        How features are scaled. ``"auto"``: as ``"robust"``, and each feature is then multiplied by
        its relevance (:mod:`bmsvm.selection.relevance`) if the lengthscale is chosen from the data.
        ``"robust"`` (or True): to mean 0 and variance 1, after a shift by the median, a division by
        the interquartile range / 1.349, and a smooth clip at 5, so that outliers do not determine
        the scale. ``"standard"``: by mean and standard deviation. False or None: not at all.
        Constant features become 0. See :class:`bmsvm.scaling.Scaling`.
    class_weight
        Weights of the classes, as a dict; ``"balanced"``; or None. They multiply the weights of
        the rows.
    predictive
        How predictions are made from the posterior: ``"auto"`` calibrates its draws by
        leave-one-out, and pools them with least squares if the likelihood is ``"auto"`` or
        ``"normalized"``;
        ``"calibrated"`` does the first only; ``"posterior"`` takes them as they are; ``"paper"``
        decides by eq. (20); or a :class:`bmsvm.Predictive`.
    random_state
        Seed, or a ``numpy.random.RandomState``.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The classes, sorted.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (p,)
        Names of the features, if X had strings for them.
    predictive_ : bmsvm.PredictiveDistribution
        The predictive distribution, from which everything is predicted.
    posterior_ : bmsvm.Posterior
        The posterior of the model: ``predictive_.posterior``.
    run_ : bmsvm.inference.Run
        The chains: their draws and their state. ``run_.interrupted`` says whether fewer draws were
        made than asked for.
    selection_ : bmsvm.selection.Selection or None
        How the lengthscale was chosen, if it was chosen from the data.
    kernel_ : bmsvm.kernels.Kernel
        The kernel, given or chosen.
    lengthscale_ : float, ndarray or None
        theta, or its posterior median if it was sampled; None if the kernel has none. In units of
        the features as the kernel sees them: scaled, and multiplied by their relevance.
    diagnostics_ : dict
        R-hat and effective sample size of the watched quantities, by name.
    checks_ : dict
        Other numbers that are watched, each with its limit, by name: ``acceptance`` and
        ``trajectory`` of the sampler, ``values of theta`` if it was sampled by chains, ``basis
        error`` of a Gram matrix of low rank; without a limit, ``large Pareto k``, a share of rows,
        of the leave-one-out of the calibration.
    row_indices_ : ndarray of shape (n,)
        Indices of the rows of positive weight in the data.
    n_iter_ : int
        Sweeps of each chain, warm-up included.
    scaling_ : bmsvm.scaling.Scaling or None
        Scaling of the features, with their ``relevance``; None if they are not scaled.
    seed_ : int
        Seed that was drawn from ``random_state``.

    Notes
    -----
    ``sample_weight`` multiplies the log likelihood of a row. A weight of 0 leaves the row out; a
    weight of 2 is not the row given twice, since each row has scores of its own.

    Everything is computed in float64, whatever JAX is set to; no setting is changed.

    Examples
    --------
    >>> from bmsvm import BMSVMClassifier
    >>> from bmsvm.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BMSVMClassifier(lengthscale=3.5, num_samples=200, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        *,
        likelihood: str = "auto",
        coupling: str = "sum_to_zero",
        kernel: Kernel | KernelFn | str = "auto",
        lengthscale: ArrayLike | Sampled | Method | str = "auto",
        hyperparameters: Hyperparameters | None = None,
        approximation: Approximation | str = "auto",
        sampler: Sampler | str = "auto",
        num_chains: int = 4,
        num_warmup: int | None = None,
        num_samples: int = 200,
        standardize: Standardize = "auto",
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        predictive: Predictive | str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.likelihood = likelihood
        self.coupling = coupling
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.hyperparameters = hyperparameters
        self.approximation = approximation
        self.sampler = sampler
        self.num_chains = num_chains
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.standardize = standardize
        self.class_weight = class_weight
        self.predictive = predictive
        self.random_state = random_state

    @classmethod
    def paper(cls, *, printed_ratio: bool = False, **settings: Any) -> BMSVMClassifier:
        """Return the classifier of sections 3 to 5 of the paper.

        Hinge likelihood (11), the independent columns of (13)-(19), the hyperparameters, M1, M2 and
        M of section 5 (5000 sweeps of warm-up, then 500 draws of 10 sweeps), the sweep of section
        4.1 and the decision (20). ``lengthscale="sample"``, the default here, has the paper's
        uniform prior on a grid. Features are scaled by mean and standard deviation.

        The chain has not converged after the paper's 10,000 sweeps, and ``fit`` warns. With theta
        sampled, as the paper did on vehicle, theta goes to the end of its prior and the classes are
        useless (docs/table1.md); ``lengthscale=3.5`` is the paper's theta for wine and waveform,
        10 that for glass. Three printed formulas are corrected: the shape of sigma2, always; the
        count in the update of tau, where the Gram matrix is numerically singular; the ratio of
        theta, unless ``printed_ratio=True``.

        Parameters
        ----------
        printed_ratio
            Whether theta moves by the ratio printed in section 4.1, which does not leave the
            posterior invariant (docs/paper.md). It has the determinant of the Gram matrix, which
            must not be singular: no row may be given twice, and theta does not go where it is
            numerically singular. With 178 rows hardly any move is accepted.
        **settings
            Parameters of the class that replace the paper's.
        """
        paper: dict[str, Any] = {
            "likelihood": "hinge",
            "coupling": "independent",
            "kernel": "gaussian",
            "lengthscale": "sample",
            "hyperparameters": PAPER,
            "approximation": "exact",
            "sampler": paper_sampler(printed_ratio, settings),
            "num_chains": 1,
            "num_warmup": 5000,
            "num_samples": 500,
            "standardize": "standard",
            "predictive": "paper",
        }
        return cls(**{**paper, **settings})

    # Fitting --------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        checkpoint: Any = None,
        max_time: float | None = None,
    ) -> BMSVMClassifier:
        """Draw from the posterior given the data.

        An interruption (Ctrl-C) after the first draws leaves a model of those that are finished,
        with a warning; :meth:`fit_more` makes the rest.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Rows; or their Gram matrix (n, n) with ``kernel="precomputed"``.
        y : array-like of shape (n,)
            Labels.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.
        max_time : float, optional
            Seconds after which the chains end with the draws that are finished, with a warning.
            They make some draws in any case, and the calibration follows.
        checkpoint : path, optional
            A directory in which the chains are kept while they run (``store`` of
            :func:`bmsvm.run_chains`). If the process dies, the same call resumes from there, and
            :meth:`fit_more` continues there too. What is chosen from the data, such as the
            lengthscale, is chosen again. ``random_state`` must then be an integer.
        """
        check_settings(self, checkpoint)
        deadline = None
        if max_time is not None:
            check_positive("max_time", max_time)
            deadline = time.monotonic() + max_time
        for name in ("run_", "predictive_"):  # a fit that fails leaves no part of an older model
            self.__dict__.pop(name, None)
        X, labels, weights = self._checked_data(X, y, sample_weight)
        self._learn_inputs(X)
        self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with jax.enable_x64(True), few_blas_threads(len(labels)):
            with stages(4, "fit") as begin:
                plan = plan_of(self, len(labels), len(self.classes_))
                spare = 0 if plan.as_printed else -len(labels) % ROW_MULTIPLE
                begin("choose kernel and lengthscale")
                data = Data(self._standardized(X), labels, weights)
                ahead = begin_ahead(plan, data, spare_rows=spare)
                data = self._weighed(plan, data)
                self.selection_ = choose(plan, data)
                plan = plan.with_selection(self.selection_)
                begin("factor the Gram matrix")
                problem = problem_of(plan, data, spare_rows=spare)
                begin("draw")
                ahead.wait()
                left = _seconds_until(deadline)
                run = sample(plan, problem, self.classes_, store=checkpoint, max_time=left)
                begin("calibrate")
                predictive = calibrated(plan, posterior_of(plan, run, data.rows), stacklevel=3)
            self._summarise(plan, run, predictive, asked=self.num_samples)
        return self

    def fit_more(self, num_samples: int | None = None) -> BMSVMClassifier:
        """Continue the chains where they stopped: the same draws as one longer run.

        Parameters
        ----------
        num_samples : int, optional
            Draws to add to each chain. Default: the parameter ``num_samples``.
        """
        check_is_fitted(self, "predictive_")
        num_samples = self.num_samples if num_samples is None else num_samples
        check_sweeps("num_samples", num_samples)
        with jax.enable_x64(True), few_blas_threads(len(self.posterior_.training_rows)):
            asked = self.run_.num_samples + num_samples
            rows = self.posterior_.training_rows
            plan = plan_of(self, len(rows), len(self.classes_)).with_selection(self.selection_)
            plan = replace(plan, settings=replace(plan.settings, kernel=self.kernel_))
            run = quietly(self.run_.more, num_samples).loaded()
            predictive = calibrated(plan, posterior_of(plan, run, rows), stacklevel=3)
            self._summarise(plan, run, predictive, asked=asked)
        return self

    @property
    def kernel_(self) -> Kernel:
        """The kernel, given or chosen."""
        check_is_fitted(self, "predictive_")
        return as_kernel(self.posterior_.kernel)

    @property
    def row_indices_(self) -> np.ndarray:
        """Indices in the data of the rows of positive weight, shape (n,)."""
        check_is_fitted(self, "predictive_")
        every = np.arange(len(self.posterior_.training_rows))
        return every if self.kept_rows_ is None else self.kept_rows_

    @property
    def checks_(self) -> dict[str, Check]:
        """Checks of the chains, of a basis of low rank and of leave-one-out, by name."""
        check_is_fitted(self, "posterior_")
        return checks_of(self.run_, self.predictive_)

    def _weighed(self, plan: Plan, data: Data) -> Data:
        """Learn the relevance of the features, if it is wanted, and multiply the rows by it."""
        (rows, labels, weights), scaling = data, self.scaling_
        if self.standardize != "auto" or scaling is None or method_of(plan.settings) is None:
            return data
        factors = relevance(rows, labels, len(self.classes_), weights)
        self.scaling_ = replace(scaling, relevance=factors)
        return data._replace(rows=rows * factors)

    def _summarise(
        self, plan: Plan, run: Run, predictive: PredictiveDistribution, asked: int
    ) -> None:
        """Set the fitted attributes, and warn if the chains have not converged."""
        rows, sampled = predictive.posterior.training_rows, run.samples.get("lengthscale")
        theta = predictive.posterior.lengthscale
        theta = theta if sampled is None else np.median(sampled, axis=(0, 1))
        self.lengthscale_ = float(theta) if theta is not None and np.ndim(theta) == 0 else theta
        watched = watch(run.samples, run.problem, len(rows), self.classes_)
        self.diagnostics_ = diagnose(watched.quantities)
        self.run_, self.predictive_ = run, predictive
        self.n_iter_ = int(run.state.i)
        warn_of_fit(
            run,
            predictive,
            self.diagnostics_,
            asked=asked,
            basis_by_default=isinstance(plan.low_rank, Nystrom) and plan.low_rank.rank is None,
            stacklevel=4,
        )


def _seconds_until(deadline: float | None) -> float | None:
    """Return the seconds that are left, next to none at the end; None without a deadline."""
    return None if deadline is None else max(deadline - time.monotonic(), SHORTEST)
