"""The classifier: scikit-learn's interface to the posterior."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal, cast

import jax
import numpy as np
import xarray
from jax.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bmsvm._validation import check_choice, check_probability, check_sweeps, labels_of_rows
from bmsvm.estimators.approximate import variational_run, variational_start
from bmsvm.estimators.convergence import diagnose, warn_unless_converged
from bmsvm.estimators.inputs import KernelInputs, check_flag
from bmsvm.estimators.notebook import NotebookRepr
from bmsvm.estimators.reporting import Reporting
from bmsvm.features import LowRank
from bmsvm.inference import uncertainty
from bmsvm.inference.calibration import NONE, Calibration, best_calibration, calibrate
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.loo import leave_one_out, obstacle
from bmsvm.inference.posterior import POINTS, Posterior, posterior_of
from bmsvm.inference.posterior_predictive import predictive_draws
from bmsvm.inference.programs import forget_old_programs
from bmsvm.inference.run import WATCHED, Run, run_chains
from bmsvm.kernels import STATIONARY, KernelFn
from bmsvm.models.hyperparameters import UNIT_NOISE, Hyperparameters
from bmsvm.models.likelihoods import exclusion_probabilities
from bmsvm.models.problem import Problem, some_rows
from bmsvm.rows import in_pieces

__all__ = ["DEFAULT_LENGTHSCALE", "BMSVMClassifier"]

DEFAULT_LENGTHSCALE = "auto"
"""How the lengthscale is found unless something is said."""

SELECTION_ROWS = 1024
"""Most rows by which a lengthscale is found, unless something is said."""

EVIDENCE = {"num_warmup": 60, "num_steps": 40, "sweeps": 5, "step_size": 0.07}
"""How the marginal likelihood is climbed, unless something is said."""

WARMUP = 300
"""Sweeps of warm-up, unless something is said."""

WARMUP_IF_HELD = 150
"""As above, where tau has been found with the lengthscale, which leaves less to be tuned."""

WARMUP_IF_TUNED = 50
"""As above, after a search for the lengthscale that has tuned the chains."""

THINNING_IF_LARGE = 4
"""Sweeps of the preset ``"large"`` for each draw, since it makes a few steps in each."""

FEATURES = ("auto", "exact", "nystrom", "fourier")
EXACT_ROWS = 2000
"""Rows up to which ``features="auto"`` is exact."""

BASIS_SIZE = 2**24
"""Numbers in a basis that may have more columns than :class:`bmsvm.LowRank` has by itself."""

LARGEST_RANK = 1536
"""Most columns of such a basis."""

DECISIONS = ("probability", "paper")
UNCERTAINTIES = ("gp", "representer")
CALIBRATIONS = ("auto", "loo")
INFERENCES = ("mcmc", "variational")
INITS = ("default", "variational")

LOO_DRAWS = 400
"""Most draws, evenly spaced, that leave-one-out for calibration looks at."""

LOO_ROWS = 2000
"""Most rows, evenly spaced, that it looks at where scores are integrated out."""

LOO_NODES = 64
"""Points at which it integrates."""

ROW_MULTIPLE = 32
"""Rows of weight zero fill the data up to a multiple of this, so that the folds of a
cross-validation, or data that grow a little, share one compiled program."""

WATCHED_ROWS = 10
"""Training rows at which the functions are watched for convergence."""

TINY = float(np.finfo(np.float32).tiny)

FINE_POINTS = 64
"""Points at which the noise is integrated where entropies are taken, which see its error."""


class BMSVMClassifier(Reporting, NotebookRepr, KernelInputs, ClassifierMixin, BaseEstimator):
    """Bayesian multicategory support vector machine, for scikit-learn.

    ``fit`` draws from the posterior; every prediction is an average over the draws. Probabilities
    are those of eq. (21), and ``predict`` is the class of the largest, always.

    Parameters
    ----------
    likelihood
        ``"normalized"`` (21), ``"hinge"`` (11) or ``"probit"``. The hinge is no distribution of
        the labels, and says too little when there are many classes.
    coupling
        ``"sum_to_zero"``, or ``"independent"`` as printed in the paper.
    kernel
        ``"gaussian"``, ``"matern32"``, ``"matern52"``, ``"linear"``, ``"precomputed"``, or a
        callable ``kernel(X1, X2) -> (n1, n2)`` such as a tinygp kernel.
    lengthscale
        theta of the kernel, in units of the standardised features: a number, one for each
        feature, or how to find it: ``"mode-cv"``, ``"marginal-likelihood"`` or ``"cv"`` (first), or
        ``"sample"`` (with everything else); see :class:`bmsvm.BMSVMGibbs`. ``"auto"``: the first,
        which finds tau too, unless ``hyperparameters`` are given or the model is not that of the
        default; then the second. Kernels that have no lengthscale do without.
    lengthscale_prior, lengthscale_grid
        Prior of a sampled theta, and the values it may take.
    lengthscale_options
        Further arguments of the other three ways.
    hyperparameters
        Constants of the other priors. None: :data:`bmsvm.UNIT_NOISE`, the paper's but for a noise
        variance near 1; :data:`bmsvm.PAPER` are the paper's. With ``lengthscale="mode-cv"`` and an
        exact Gram matrix the prior of tau is a narrow one around the tau that was found.
    features
        The Gram matrix: ``"exact"``; or of low rank, by ``"nystrom"`` or ``"fourier"``, in time and
        memory linear in the rows; or a :class:`bmsvm.LowRank`, which says more. ``"auto"``:
        ``"nystrom"`` beyond 2000 rows, where the model allows it, and ``"exact"`` otherwise.
    rank
        Columns of a Gram matrix of low rank. None: as many as leave 1% of the variance of the
        functions; at most 1536, and 512 where rows are more than 33,000.
    preset
        The sampler: ``"default"``, ``"gibbs"``, ``"paper"``, or ``"large"``. ``"auto"``: the last
        with a Gram matrix of low rank, and otherwise the first.
    inference
        ``"mcmc"``; or ``"variational"``: independent draws of a normal distribution fitted to the
        posterior (:func:`bmsvm.inference.variational.fit_variational`), fast, and with nothing
        that says how far it is off. Needs optax, ``bmsvm[variational]``.
    init
        Where chains start: ``"default"``, or ``"variational"``, at draws of that distribution.
    num_chains, num_warmup, num_samples, thinning
        Number of chains, sweeps in which the sampler tunes itself, draws of each chain, and
        sweeps for each draw. ``num_warmup=None`` is 300, 150 where ``"mode-cv"`` has found tau, and
        50 with ``"marginal-likelihood"``, whose search has tuned the chains; ``thinning=None``
        is 1, and 4 under the preset ``"large"``, whose sweeps are short.
    standardize
        Whether features are brought to mean 0 and variance 1 first; constant ones to 0.
    class_weight
        Weights of the classes, as a dict; ``"balanced"``; or None. They multiply the weights of
        the rows.
    decision
        ``"probability"``: predict the likeliest class. ``"paper"``: the class whose averaged
        probability of *not* being it, eq. (20), is smallest. The second can contradict
        ``predict_proba``.
    calibration
        ``"loo"``: probabilities are raised to a power, and mixed with a little chance, so that the
        training rows, each predicted without its label, score best; predictions stay the same.
        None: posterior means as they are. ``"auto"``: the first, where the model allows it
        (not with ``likelihood="probit"`` or ``coupling="independent"``).
    uncertainty
        ``"gp"``: a new row is as uncertain as the Gaussian process says, and uncertainty grows
        away from the data. ``"representer"``: functions are the kernel expansion (1), and
        vanish there.
    random_state
        Seed, or a ``numpy.random.RandomState``.
    progress_bar
        Whether to show progress, in fitting and in prediction.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The classes, sorted.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (p,)
        Names of the features, where X had strings for them.
    n_iter_ : int
        Sweeps of each chain, warm-up included.
    calibration_ : bmsvm.inference.calibration.Calibration
        The power, and the share of chance; 1 and 0 where probabilities are not calibrated.
    features_ : str
        ``"exact"``, ``"nystrom"`` or ``"fourier"``; ``problem_.features`` has the landmarks and the
        error, the mean of ``k(x, x) - |Phi(x)|^2`` over the rows.
    lengthscale_ : float or ndarray
        theta, or its posterior median where it was sampled.
    run_ : bmsvm.inference.run.Run
        The chains: their draws, and where they stand. ``run_.interrupted`` says whether fewer
        draws were made than asked for.
    lengthscale_rows_ : int or None
        Rows by which ``"mode-cv"`` or ``"marginal-likelihood"`` found theta: all, or 1024 of more,
        chosen at random with the classes in proportion (``lengthscale_options={"max_rows": m}``
        looks at another number of rows). None for other ways.
    problem_ : bmsvm.Problem
        The prepared training data.
    training_rows_ : ndarray of shape (n, p)
        Training rows of positive weight, standardised; a :class:`bmsvm.rows.PiecewiseRows` of
        them where they were read in pieces.
    diagnostics_ : dict
        R-hat and effective sample size of what was watched, by name.
    seed_ : int
        Seed that was drawn from ``random_state``.

    Notes
    -----
    ``sample_weight`` multiplies the log likelihood of a row. A weight of 0 is the row left out; a
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
        likelihood: str = "normalized",
        coupling: str = "sum_to_zero",
        kernel: KernelFn | str = "gaussian",
        lengthscale: ArrayLike | str = DEFAULT_LENGTHSCALE,
        lengthscale_prior: str = "uniform",
        lengthscale_grid: ArrayLike | None = None,
        lengthscale_options: dict[str, Any] | None = None,
        hyperparameters: Hyperparameters | None = None,
        features: str | LowRank = "auto",
        rank: int | None = None,
        preset: str = "auto",
        inference: str = "mcmc",
        init: str = "default",
        num_chains: int = 4,
        num_warmup: int | None = None,
        num_samples: int = 200,
        thinning: int | None = None,
        standardize: bool = True,
        class_weight: dict | Literal["balanced"] | None = None,
        decision: str = "probability",
        calibration: str | None = "auto",
        uncertainty: str = "gp",
        random_state: int | np.random.RandomState | None = None,
        progress_bar: bool = False,
    ) -> None:
        self.likelihood = likelihood
        self.coupling = coupling
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.lengthscale_prior = lengthscale_prior
        self.lengthscale_grid = lengthscale_grid
        self.lengthscale_options = lengthscale_options
        self.hyperparameters = hyperparameters
        self.features = features
        self.rank = rank
        self.preset = preset
        self.inference = inference
        self.init = init
        self.num_chains = num_chains
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.thinning = thinning
        self.standardize = standardize
        self.class_weight = class_weight
        self.decision = decision
        self.calibration = calibration
        self.uncertainty = uncertainty
        self.random_state = random_state
        self.progress_bar = progress_bar

    # Fitting ---------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, checkpoint=None) -> BMSVMClassifier:
        """Draw from the posterior given the data.

        An interruption (Ctrl-C) after the first draws leaves a model of those that are finished,
        with a warning; :meth:`fit_more` makes the rest.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Rows; or their Gram matrix (n, n) with ``kernel="precomputed"``. A memory map, a Zarr
            array or what else has ``shape``, ``dtype`` and ``chunks`` is read in pieces where the
            Gram matrix is of low rank, and never copied; so it is in prediction. Batches that come
            by: :func:`bmsvm.from_batches`.
        y : array-like of shape (n,)
            Labels.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.
        checkpoint : path, optional
            A directory in which the chains are kept while they run (``store`` of
            :func:`bmsvm.run_chains`). If the process dies, the same call goes on from there, and
            :meth:`fit_more` continues there too. A search for the lengthscale is made again.
            ``random_state`` must then be an integer.
        """
        self._check_settings()
        if checkpoint is not None and self.inference == "variational":
            raise ValueError('checkpoint is for inference="mcmc": there are no chains to keep')
        if checkpoint is not None and not isinstance(self.random_state, int | np.integer):
            raise ValueError(
                "random_state must be an integer with checkpoint, for a second call to be the "
                f"same; got {self.random_state!r}"
            )
        X, labels, weights = self._checked_data(X, y, sample_weight)
        if self.likelihood == "probit" and np.any(weights != 1):
            raise ValueError(
                'sample_weight and class_weight must be 0 or 1 with likelihood="probit", whose '
                f"log likelihood is 0 or minus infinity; got {weights[weights != 1][0]}"
            )
        if hasattr(self, "run_"):  # what is interrupted below is not half an older model
            del self.run_
        self._learn_inputs(X)
        self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.kernel_ = self.kernel
        self.training_rows_ = self._as_the_kernel_sees(X)
        forget_old_programs(self.training_rows_)
        low = self._low_rank(len(labels))
        self.features_ = "exact" if low is None else low.kind
        sampler = BMSVMGibbs(
            self.kernel,
            features=low,
            lengthscale=cast(Any, self._lengthscale()),
            lengthscale_prior=self.lengthscale_prior,
            lengthscale_grid=self.lengthscale_grid,
            lengthscale_options=self._selection_options(),
            coupling=self.coupling,
            likelihood=self.likelihood,
            hyperparameters=UNIT_NOISE if self.hyperparameters is None else self.hyperparameters,
            preset=self._preset(low),
        )
        with jax.enable_x64(True):
            problem = sampler.prepare(
                self.training_rows_, labels, weights, spare_rows=-len(labels) % ROW_MULTIPLE
            )
            if problem.samples_kernel and problem.grid is None:
                raise ValueError(
                    'lengthscale="sample" needs a grid here: pass lengthscale_grid such as '
                    "numpy.geomspace(0.5, 50, 8), which beyond 2000 rows is sampled with low rank, "
                    f"or another lengthscale. Got lengthscale_grid={self.lengthscale_grid!r} and "
                    f"{len(labels)} rows"
                )
            fitting: Any = {
                "seed": self.seed_,
                "num_chains": self.num_chains,
                "progress_bar": self.progress_bar,
            }
            if self.inference == "variational":
                run = variational_run(sampler, problem, num_samples=self.num_samples, **fitting)
                self._adopt(run, self.num_samples)
                return self
            start = None
            if self.init == "variational":
                start = variational_start(problem, **fitting)
            tuned = sampler.tuned_chains(problem, self.num_chains) if start is None else None
            self._adopt(
                _quietly(
                    run_chains,
                    sampler,
                    jax.random.key(self.seed_),
                    problem,
                    num_warmup=self._num_warmup(tuned is not None),
                    num_samples=self.num_samples,
                    num_chains=self.num_chains,
                    thinning=self._thinning(problem),
                    collect=_collected(problem),
                    init_params=start,
                    tuned=tuned,
                    store=checkpoint,
                    progress_bar=self.progress_bar,
                ),
                self.num_samples,
            )
        return self

    def fit_more(self, num_samples: int | None = None) -> BMSVMClassifier:
        """Continue the chains where they stopped: the same draws as having run longer.

        Parameters
        ----------
        num_samples : int, optional
            Draws to add to each chain. Default: as many as were asked for in ``fit``.
        """
        check_is_fitted(self, "run_")
        if self.inference == "variational":
            raise ValueError('fit_more is for inference="mcmc": there are no chains to continue')
        num_samples = self.num_samples if num_samples is None else num_samples
        check_sweeps("num_samples", num_samples)
        with jax.enable_x64(True):
            asked = self.run_.num_samples + num_samples
            run = _quietly(self.run_.more, num_samples, progress_bar=self.progress_bar)
            self._adopt(run, asked)
        return self

    def _check_settings(self) -> None:
        """Check what is not checked when the data are prepared."""
        for name in ("num_chains", "num_samples"):
            check_sweeps(name, getattr(self, name))
        if self.thinning is not None:
            check_sweeps("thinning", self.thinning)
        if self.num_warmup is not None:
            check_sweeps("num_warmup", self.num_warmup, smallest=0)
        check_choice("inference", self.inference, INFERENCES)
        check_choice("init", self.init, INITS)
        if "variational" in (self.inference, self.init):
            self._check_variational()
        if self.calibration is not None:
            check_choice("calibration", self.calibration, CALIBRATIONS)
        needed = obstacle(self.coupling, self.likelihood)
        if self.calibration == "loo" and needed is not None:
            raise ValueError(f'calibration="loo" needs {needed}: pass calibration="auto" or None')
        check_choice("decision", self.decision, DECISIONS)
        check_choice("uncertainty", self.uncertainty, UNCERTAINTIES)
        for name in ("standardize", "progress_bar"):
            check_flag(name, getattr(self, name))

    def _check_variational(self) -> None:
        """Check that the model has a variational approximation."""
        told = "inference" if self.inference == "variational" else "init"
        needed = obstacle(self.coupling, self.likelihood)
        if isinstance(self.lengthscale, str) and self.lengthscale == "sample":
            needed = 'a lengthscale that is not sampled; got "sample"'
        if needed is not None:
            raise ValueError(f'{told}="variational" needs {needed}')
        if told == "init" and self.preset == "large":
            raise ValueError(
                'init="variational" is for chains that start at scores; those of preset="large" '
                "start at Laplace's approximation"
            )

    def _low_rank(self, n_rows: int) -> LowRank | None:
        """Return how the Gram matrix of so many rows is approximated; None: it is not."""
        if isinstance(self.features, LowRank):
            how = self.features
        else:
            check_choice("features", self.features, FEATURES)
            fits = self.coupling == "sum_to_zero" and not self._precomputed(self.kernel)
            sampled = isinstance(self.lengthscale, str) and self.lengthscale == "sample"
            fits = fits and not (sampled and self.lengthscale_grid is None)
            automatic = self.features == "auto"
            exact = automatic and (n_rows <= EXACT_ROWS or not fits)
            most = max(LowRank.max_rank, min(LARGEST_RANK, BASIS_SIZE // n_rows))
            how = LowRank("nystrom" if automatic else self.features, max_rank=most)
            if exact or self.features == "exact":
                if self.rank is not None and not automatic:
                    raise ValueError(
                        f"rank is for features of low rank; got rank={self.rank!r} with "
                        'features="exact"'
                    )
                return None
        if self.rank is not None:
            how = replace(how, rank=self.rank)
        if how.dtype is None and self._preset(how) == "large":
            how = replace(how, dtype="float32")
        how.validate()
        return how

    def _reads_in_pieces(self, X: Any) -> bool:
        pieces = in_pieces(X) and not self._precomputed(self.kernel)
        return pieces and self._low_rank(X.shape[0]) is not None

    def _preset(self, low: LowRank | None) -> str:
        if self.inference == "variational":
            return "default"  # of which nothing is run
        if self.init == "variational" and self.preset == "auto":
            return "default"
        if self.preset != "auto":
            return self.preset
        return "default" if low is None or self.likelihood == "probit" else "large"

    def _lengthscale(self) -> ArrayLike | str:
        """Return the lengthscale as given, or what the default is of this model."""
        if not (isinstance(self.lengthscale, str) and self.lengthscale == DEFAULT_LENGTHSCALE):
            return self.lengthscale
        if not (isinstance(self.kernel, str) and self.kernel in STATIONARY):
            return 1.0  # the kernel has none
        plain = (self.likelihood, self.coupling) == ("normalized", "sum_to_zero")
        return "mode-cv" if plain and self.hyperparameters is None else "marginal-likelihood"

    def _selection_options(self) -> dict[str, Any] | None:
        """Return the options of a lengthscale set from the data, our seed among them."""
        method = self._lengthscale()
        given = self.lengthscale_options
        if not isinstance(method, str) or method == "sample" or not isinstance(given, dict | None):
            return given  # which the sampler judges
        ours: dict[str, Any] = {"seed": self.seed_, "progress_bar": self.progress_bar}
        if method in ("marginal-likelihood", "mode-cv"):
            ours["max_rows"] = SELECTION_ROWS
        if method == "marginal-likelihood":
            ours.update(EVIDENCE, num_chains=self.num_chains)
        return {**ours, **(given or {})}

    def _num_warmup(self, tuned: bool) -> int:
        if self.num_warmup is not None:
            return self.num_warmup
        if tuned:
            return WARMUP_IF_TUNED
        method = self._lengthscale()
        held = isinstance(method, str) and method == "mode-cv" and self.features_ == "exact"
        return WARMUP_IF_HELD if held else WARMUP

    def _thinning(self, problem: Problem) -> int:
        if self.thinning is not None:
            return self.thinning
        return 1 if problem.reference is None else THINNING_IF_LARGE

    def _adopt(self, run: Run, asked: int) -> None:
        """Take over finished chains, and look whether they have converged."""
        run = run.loaded()
        self.run_ = run
        self.n_iter_ = int(run.state.i)
        sampled = run.samples.get("lengthscale")
        self.lengthscale_ = (
            _chosen_lengthscale(run, self._lengthscale()) if sampled is None else np.median(sampled)
        )
        chains = self.inference == "mcmc"  # independent draws have nothing to diagnose
        self.diagnostics_ = diagnose(self._watched()) if chains else {}
        self.calibration_ = self._best_calibration()
        if run.interrupted:
            warnings.warn(
                f"interrupted: {run.num_samples} of {asked} draws were made; the model uses them, "
                f"and fit_more({asked - run.num_samples}) makes the rest",
                stacklevel=3,
            )
        if chains:
            warn_unless_converged(
                self.diagnostics_,
                num_warmup=int(run.state.n_warmup),
                num_samples=run.num_samples,
                stacklevel=4,
            )

    def _watched(self) -> dict[str, np.ndarray]:
        """Quantities that should have converged, each of shape (chain, draw)."""
        samples = self.run_.samples
        positive = ("noise_variance", "precision", "lengthscale")
        watched = {name: np.log(samples[name]) for name in positive if name in samples}
        n = len(self.training_rows_)
        rows = np.unique(np.linspace(0, n - 1, min(n, WATCHED_ROWS)).astype(int))
        exact = self.problem_.features is None  # what low rank leaves open is not in the chains
        posterior = self._posterior(points=1, remainder=exact)
        (part,) = posterior.evaluate(self.training_rows_[rows], probabilities=False)
        shape = samples["precision"].shape
        for row, functions in zip(rows, part.functions, strict=True):
            # The functions sum to zero, so that the last says nothing new.
            for name, function in zip(self.classes_[:-1], functions[:-1], strict=True):
                watched[f"f at training row {row}, class {name}"] = function.reshape(shape)
        return watched

    def _best_calibration(self) -> Calibration:
        """Find that under which the training rows, predicted without their labels, score best."""
        problem = self.problem_
        if self.calibration is None or obstacle(problem.coupling, problem.likelihood):
            return NONE
        samples = self.run_.samples
        total = samples["precision"].size
        which = np.unique(np.linspace(0, total - 1, min(total, LOO_DRAWS)).astype(int))
        sites: tuple[str, ...] = ("scores", "noise_variance", "precision", "lengthscale")
        if "scores" not in samples:  # they were integrated out
            sites = ("weights", "intercept", "noise_variance", "precision", "lengthscale")
            problem = some_rows(problem, LOO_ROWS)
        draws = {
            name: samples[name].reshape(total, *samples[name].shape[2:])[which]
            for name in sites
            if name in samples
        }
        loo = leave_one_out(draws, problem, num_nodes=LOO_NODES)
        weights = problem.row_weights
        return best_calibration(
            loo.probabilities,
            np.asarray(problem.labels),
            None if weights is None else np.asarray(weights),
        )

    @property
    def problem_(self) -> Problem:
        """The prepared training data."""
        check_is_fitted(self, "run_")
        return self.run_.state.problem

    @property
    def lengthscale_rows_(self) -> int | None:
        """Rows by which modes or the marginal likelihood found theta; None for other ways."""
        check_is_fitted(self, "run_")
        return getattr(self.run_.sampler.lengthscale_selection, "num_rows", None)

    # Prediction ------------------------------------------------------------------------------

    def predict(self, X) -> np.ndarray:
        """Predict the class of each row: shape (m,).

        The likeliest class, the first of equals; with ``decision="paper"`` the class that is
        least probably excluded, eq. (20).
        """
        best = np.argmax(self._merit(X), axis=1)
        return self.classes_[best]

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities, averaged over the posterior and calibrated: shape (m, c)."""
        rows = self._rows(X)
        posterior = self._posterior()
        means = np.empty((len(rows), posterior.n_classes))
        for part in posterior.evaluate(rows, functions=False, progress=self._progress()):
            means[part.rows] = part.probabilities.mean(axis=-1, dtype=np.float64)
        # Probabilities are positive; zeros are for want of draws, or of range in float32.
        least = 0.5 / (posterior.n_draws * POINTS) if posterior.likelihood == "probit" else TINY
        means = means + least
        return calibrate(means / means.sum(axis=1, keepdims=True), self.calibration_)

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithms of ``predict_proba``: shape (m, c)."""
        return np.log(self.predict_proba(X))

    def decision_function(self, X) -> np.ndarray:
        """Score of each class, the largest at the class that ``predict`` chooses.

        The logarithm of what ``predict`` compares, less its mean over the classes: shape (m, c).
        With two classes the log odds of the second, shape (m,). The posterior mean of the class
        functions themselves, which may order the classes otherwise, is :meth:`class_functions`.
        """
        merit = self._merit(X)
        if merit.shape[1] == 2:
            return np.log1p((merit[:, 1] - merit[:, 0]) / merit[:, 0])
        logs = np.log(merit)
        scores = logs - logs.mean(axis=1, keepdims=True)
        # Logarithms of neighbouring numbers may be equal, and the first of equals another class.
        rows, best = np.arange(len(merit)), merit.argmax(axis=1)
        scores[rows, best] = np.where(
            scores.argmax(axis=1) == best, scores[rows, best], np.nextafter(scores.max(1), np.inf)
        )
        return scores

    def class_functions(self, X) -> np.ndarray:
        """Posterior means of the class functions f, which sum to zero: shape (m, c)."""
        rows = self._rows(X)
        posterior = self._posterior(remainder=False)  # its mean is zero
        means = np.empty((len(rows), posterior.n_classes))
        for part in posterior.evaluate(rows, probabilities=False, progress=self._progress()):
            means[part.rows] = part.functions.mean(axis=-1)
        return means

    def predict_exclusion(self, X) -> np.ndarray:
        """Averaged probability of not being in a class, ``E exp(-(f_j + d)_+)``: shape (m, c).

        Eq. (20). The paper predicts the class where it is smallest.
        """
        rows = self._rows(X)
        posterior = self._posterior()
        means = np.empty((len(rows), posterior.n_classes))
        for part in posterior.evaluate(rows, probabilities=False, progress=self._progress()):
            means[part.rows] = exclusion_probabilities(part.functions, axis=1).mean(axis=-1)
        return means

    def posterior_predictive(self, X) -> xarray.Dataset:
        """Draw functions f, scores z, probabilities p(y | z) and labels y at rows.

        Draws of f are joint over the rows as far as the training rows determine the functions;
        what they leave open is drawn for each row on its own, and so are z given f and y given
        z. The random numbers depend on ``seed_`` and on the place of the row in X.

        Returns
        -------
        xarray.Dataset
            ``f``, ``z`` and ``p`` with dims (chain, draw, row, class), ``y`` with (chain, draw,
            row), named by class and by the index of X if it has one. ArviZ takes it as it is.
        """
        rows = self._rows(X)
        draws = predictive_draws(
            self._posterior(points=1), rows, self.seed_, progress=self._progress()
        )
        shape = self.run_.samples["precision"].shape
        dims = ("chain", "draw", "row", "class")
        parts = {"f": draws.functions, "z": draws.scores, "p": draws.probabilities}
        parts["y"] = self.classes_[draws.labels]
        return xarray.Dataset(
            {
                name: (dims[: value.ndim + 1], value.reshape(*shape, *value.shape[1:]))
                for name, value in parts.items()
            },
            coords={
                "chain": np.arange(shape[0]),
                "draw": np.arange(shape[1]),
                "row": labels_of_rows(X, len(rows)),
                "class": self.classes_,
            },
        )

    def predict_uncertainty(self, X, level: float = 0.9) -> uncertainty.Uncertainty:
        """Say how sure the probabilities are, and what kind of doubt is left.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Rows.
        level : float
            Probability of the credible intervals.

        Returns
        -------
        bmsvm.inference.uncertainty.Uncertainty
            ``probabilities`` (those of ``predict_proba``), ``lower``, ``upper``, ``entropy``,
            ``aleatoric``, ``epistemic``, ``exclusion``.
        """
        check_probability("level", level)
        rows = self._rows(X)
        posterior = self._posterior(points=FINE_POINTS)
        parts = [
            uncertainty.summarise(
                part.probabilities,
                exclusion_probabilities(part.functions, axis=1),
                level,
                self.calibration_,
            )
            for part in posterior.evaluate(rows, progress=self._progress())
        ]
        whole = uncertainty.Uncertainty(
            *(np.concatenate(each) for each in zip(*parts, strict=True))
        )
        return whole._replace(probabilities=self.predict_proba(X))

    def prediction_sets(self, X, level: float = 0.9) -> np.ndarray:
        """Smallest sets of classes that hold the row's class with a given probability.

        Returns
        -------
        ndarray of bool, shape (m, c)
            Membership of the classes, in the order of ``classes_``.
        """
        check_probability("level", level)
        return uncertainty.prediction_sets(self.predict_proba(X), level)

    def predict_reject(
        self, X, error: float = 0.05, *, each_row: bool = False
    ) -> np.ma.MaskedArray:
        """Predict the likeliest class, or abstain, so that the expected error meets a target.

        The most certain rows are accepted, as many as keep their expected error, the average of
        one less the largest probability, at most ``error``. Which rows those are depends on all
        of X. The promise is as good as the probabilities.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Rows.
        error : float
            Target of the expected error among accepted rows.
        each_row : bool
            Whether each accepted row has to meet the target on its own, which accepts fewer and
            makes no row depend on another.

        Returns
        -------
        numpy.ma.MaskedArray of shape (m,)
            Labels, masked where the classifier abstains.
        """
        check_probability("error", error)
        chances = self.predict_proba(X)
        accepted = uncertainty.accept(chances, error, each_row=each_row)
        return np.ma.MaskedArray(self.classes_[np.argmax(chances, axis=1)], mask=~accepted)

    def _merit(self, X) -> np.ndarray:
        """Return what ``predict`` compares: shape (m, c)."""
        check_is_fitted(self, "run_")
        check_choice("decision", self.decision, DECISIONS)
        if self.decision == "paper":
            return 1.0 / self.predict_exclusion(X)
        return self.predict_proba(X)

    def _rows(self, X) -> np.ndarray:
        """Check rows (m, p), and make them what the kernel sees."""
        check_is_fitted(self, "run_")
        return self._checked_rows(X, self.kernel_)

    def _progress(self) -> str | None:
        return "predict" if self.progress_bar else None

    def _posterior(self, *, remainder: bool = True, points: int = POINTS) -> Posterior:
        check_is_fitted(self, "run_")
        check_choice("uncertainty", self.uncertainty, UNCERTAINTIES)
        return posterior_of(
            self.run_.samples,
            self.problem_,
            self.training_rows_,
            kernel=self.kernel_,
            lengthscale=self.lengthscale_,
            remainder=remainder and self.uncertainty == "gp",
            seed=self.seed_,
            points=points,
        )


def _collected(problem: Problem) -> tuple[str, ...]:
    """Sites of the chains to keep."""
    integrated = () if problem.reference is None else ("scores",)
    sites = tuple(name for name in WATCHED if name not in integrated)
    return sites if problem.grid is None else (*sites, "lengthscale", "lengthscale_accept_prob")


def _chosen_lengthscale(run: Run, given: ArrayLike | str) -> ArrayLike:
    """Return the lengthscale that was given, or that was found when the data were prepared."""
    found = run.sampler.lengthscale_selection
    return cast(ArrayLike, given) if found is None else found.lengthscale


def _quietly(run: Any, *args: Any, **kwargs: Any) -> Run:
    """Run chains, leaving it to the caller to speak of an interruption."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="interrupted: ", category=UserWarning)
        return run(*args, **kwargs)
