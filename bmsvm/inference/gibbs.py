"""The NumPyro kernel: blocks composed into a sweep, carried by ``numpyro.infer.MCMC``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from bmsvm.features import LowRank
from bmsvm.inference.blocks import Block, Phase, in_turn, memories
from bmsvm.inference.presets import preset_blocks
from bmsvm.inference.subset import representative_rows
from bmsvm.kernels import KernelFn
from bmsvm.models.collapsed import draw_columns
from bmsvm.models.computed_basis import ComputedBasis
from bmsvm.models.conditionals import weights_given_rest
from bmsvm.models.couplings import class_vector, to_columns
from bmsvm.models.hierarchy import (
    Position,
    noise_prior,
    precision_prior,
    scores_of,
)
from bmsvm.models.hyperparameters import PAPER, Hyperparameters
from bmsvm.models.kernel_parameters import BOUNDS, EVERY
from bmsvm.models.numpyro_model import observation_model
from bmsvm.models.problem import FOR_SAMPLING, Problem, check_fixed, prepare
from bmsvm.rows import PiecewiseRows, in_pieces

if TYPE_CHECKING:
    from bmsvm.inference.select import Selection

__all__ = ["BMSVMGibbs", "BMSVMState", "sweep"]


SELECTION_ROWS = 1024
"""Rows from which a lengthscale is set where the Gram matrix is of low rank."""

BEGIN_STREAM = 0x1000
"""Sets the keys of where chains begin apart from those of the sweeps."""

INITIAL_SITES = {"scores", "noise_variance", "precision"}
"""Sites at which a chain may be told to start; the rest follows from them."""


WEIGHTS_STREAM = 0x77
"""Sets the keys of the weights apart from those of the sweeps."""

SCORES_STREAM = 0x7A
"""As above, of the scores."""


class BMSVMState(NamedTuple):
    """State of :class:`BMSVMGibbs`.

    i
        Index of the sweep, counted from the start of warm-up.
    z
        The sites of one draw: ``noise_variance``, ``precision``, ``intercept`` (c,), and the
        scores (n, c) under the name ``_scores``, which keeps them out of ``print_summary``;
        samples hold them as ``scores``.
    weights
        v, shape (r, k), from which :func:`bmsvm.models.coefficients` recovers B; ask for it with
        ``extra_fields=("weights",)``.
    position
        The parameters in the sampler's own coordinates.
    accept_prob, step_size, num_steps
        Of the block that moves the scores; ``accept_prob`` is 1 for exact draws.
    lengthscale_accept_prob
        Of the moves of theta; 0 where it is fixed.
    memory
        What the blocks learned in warm-up.
    problem
        The prepared data, shared by vectorised chains.
    n_warmup
        Number of warm-up sweeps.
    rng_key
        Random key of the next sweep.
    """

    i: jax.Array
    z: dict[str, jax.Array]
    position: Position
    accept_prob: jax.Array
    step_size: jax.Array
    num_steps: jax.Array
    lengthscale_accept_prob: jax.Array
    memory: tuple[Any, ...]
    problem: Problem
    n_warmup: jax.Array
    rng_key: jax.Array

    @property
    def weights(self) -> jax.Array:
        """Weights v drawn given the rest of the current draw, shape (r, k)."""
        if self.position.columns is None:  # then they are moved, and the scores are drawn
            return self.position.weights

        def draw(key, position):
            key = jax.random.fold_in(key, WEIGHTS_STREAM)
            return weights_given_rest(position, self.problem.at(position.kernel)).sample(key)

        one_chain = is_prng_key(self.rng_key)
        return (draw if one_chain else jax.vmap(draw))(self.rng_key, self.position)

    @property
    def scores(self) -> jax.Array:
        """Scores (n, c) of a sampler that integrates them out, drawn given the rest."""

        def draw(key, position):
            key = jax.random.fold_in(key, SCORES_STREAM)
            here = self.problem.at(position.kernel)
            return scores_of(draw_columns(key, position, here), here)

        one_chain = is_prng_key(self.rng_key)
        return (draw if one_chain else jax.vmap(draw))(self.rng_key, self.position)


class BMSVMGibbs(MCMCKernel):
    """Sampler of the Bayesian multicategory SVM, for ``numpyro.infer.MCMC``.

    Parameters
    ----------
    kernel, coupling, likelihood, hyperparameters
        The model; see :func:`bmsvm.models.prepare`.
    lengthscale
        theta: a positive number, or one per feature; ``"sample"``, to make it a parameter; or a way
        to set it from the data when they are prepared, ``"marginal-likelihood"``
        (:func:`bmsvm.maximize_evidence`), ``"cv"`` (:func:`bmsvm.cross_validate`) or
        ``"mode-cv"`` (:func:`bmsvm.cross_validate_modes`), which also sets the prior of tau where
        the Gram matrix is exact. What these found is then in the attribute
        ``lengthscale_selection``.
    lengthscale_prior, lengthscale_bounds, lengthscale_grid, per_feature
        How a sampled lengthscale is sampled; see :func:`bmsvm.models.prepare`.
    lengthscale_options
        Further arguments of the last three ways, such as ``grid`` and ``folds``, and ``seed``.
    kernel_prior, propose_every
        How other parameters of the kernel are sampled; see :func:`bmsvm.models.prepare`.
    features
        An approximation of low rank, see :class:`bmsvm.LowRank`; None for the Gram matrix itself.
    preset
        ``"default"``, ``"gibbs"``, ``"paper"``, or ``"large"``: see :mod:`bmsvm.inference.presets`.
    blocks
        The moves of one sweep, in order, instead of a preset's.

    Examples
    --------
    >>> import jax
    >>> from numpyro.infer import MCMC
    >>> from bmsvm.datasets import load_wine
    >>> from bmsvm.inference import BMSVMGibbs
    >>> X, y = load_wine(return_X_y=True)
    >>> X = (X - X.mean(0)) / X.std(0)
    >>> sampler = BMSVMGibbs(lengthscale=3.5)
    >>> mcmc = MCMC(sampler, num_warmup=50, num_samples=50, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X, y)
    >>> mcmc.get_samples()["scores"].shape
    (50, 178, 3)
    """

    sample_field = "z"

    def __init__(
        self,
        kernel: KernelFn | str | Callable[[Any], KernelFn] = "gaussian",
        *,
        lengthscale: ArrayLike | Literal["sample", "marginal-likelihood", "cv", "mode-cv"] = 1.0,
        lengthscale_prior: str = "uniform",
        lengthscale_bounds: tuple[float, float] = BOUNDS,
        lengthscale_grid: ArrayLike | Literal["off"] | None = None,
        lengthscale_options: Mapping[str, Any] | None = None,
        per_feature: bool = False,
        kernel_prior: Any = None,
        propose_every: int = EVERY,
        coupling: str = "sum_to_zero",
        likelihood: str = "hinge",
        hyperparameters: Hyperparameters = PAPER,
        features: LowRank | None = None,
        preset: str = "default",
        blocks: Sequence[Block] | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {
            "kernel": kernel,
            "lengthscale": lengthscale,
            "lengthscale_prior": lengthscale_prior,
            "lengthscale_bounds": lengthscale_bounds,
            "lengthscale_grid": lengthscale_grid,
            "per_feature": per_feature,
            "kernel_prior": kernel_prior,
            "propose_every": propose_every,
            "coupling": coupling,
            "likelihood": likelihood,
            "hyperparameters": hyperparameters,
            "features": features,
        }
        self._selection_options = lengthscale_options
        self.lengthscale_selection: Selection | None = None
        self._tuned: BMSVMState | None = None
        self._preset = preset if blocks is None else None
        self.blocks = self._preset_blocks() if blocks is None else tuple(blocks)
        self._prepared: tuple[tuple[Any, ...], Problem] | None = None
        self._sample_fn: Callable | None = None  # MCMC asks it whether init has been called

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments that make the same sampler; ``preset`` is None for one of given blocks."""
        return {**self._settings, "preset": self._preset}

    @property
    def _samples_kernel(self) -> bool:
        """Whether theta is a parameter, of any kind."""
        named = self._settings["lengthscale"]
        sampled = isinstance(named, str) and named == "sample"
        return sampled or self._settings["kernel_prior"] is not None

    def _preset_blocks(self) -> tuple[Block, ...]:
        return preset_blocks(
            cast(str, self._preset), self._settings["likelihood"], lengthscale=self._samples_kernel
        )

    @property
    def default_fields(self) -> tuple[str, ...]:
        """What ``MCMC`` keeps of every draw: the sites, acceptance and the size of steps."""
        theta = ("lengthscale_accept_prob",) if self._samples_kernel else ()
        return (self.sample_field, "accept_prob", "step_size", *theta)

    @property
    def model(self) -> Callable:
        """The NumPyro model of the labels given the scores, which ArviZ reads."""
        return observation_model(self.prepare)

    def prepare(
        self,
        X: ArrayLike | Problem,
        y: ArrayLike | None = None,
        row_weights: ArrayLike | None = None,
        spare_rows: int = 0,
    ) -> Problem:
        """Check and factor the data, once for the same data; a ``Problem`` passes through."""
        if self._settings["features"] is None and in_pieces(X):
            X = np.asarray(X)
        if isinstance(X, Problem):
            expected = self._settings["likelihood"]
            if self._preset is not None and X.likelihood != expected:
                raise ValueError(
                    f"likelihood must be that of the problem, {X.likelihood!r}, for the preset to "
                    f"choose its blocks by; got {expected!r}"
                )
            if self._preset is not None and X.samples_kernel != self._samples_kernel:
                raise ValueError(
                    'lengthscale must be "sample" for a problem prepared with that, and a number '
                    f"otherwise; got {self._settings['lengthscale']!r}"
                )
            return self._with_reference(X)
        if y is None:
            raise ValueError("y must be given: run(key, X, y), or run(key, problem)")
        rows: Any = PiecewiseRows(X) if in_pieces(X) and not isinstance(X, PiecewiseRows) else X
        precision = str(jnp.result_type(float))
        cached, data = self._prepared, (rows, y, row_weights, spare_rows, precision)
        if cached is None or not all(map(_same, cached[0], data)):
            with _concrete():
                self._tuned = None
                settings = self._resolved(rows, y, row_weights, spare_rows)
                if self._tuned is not None:  # its Gram matrix is that of the lengthscale found
                    problem = self._tuned.problem
                else:
                    problem = prepare(
                        rows, y, row_weights=row_weights, spare_rows=spare_rows, **settings
                    )
                problem = self._with_reference(problem)
            copies = tuple(
                part if part is None or in_pieces(part) else np.array(part) for part in data
            )
            cached = self._prepared = (copies, problem)
        return cached[1]

    def _with_reference(self, problem: Problem) -> Problem:
        """Give a problem the reference that its moves go by, if they do and it has none."""
        if isinstance(problem.factor.basis, ComputedBasis) and self._preset != "large":
            raise ValueError(
                'recompute needs preset="large", whose sweeps ask for products with the basis; '
                f"got {self._preset!r}"
            )
        if self._preset != "large" or problem.reference is not None:
            return problem
        from bmsvm.inference.laplace import with_reference

        return with_reference(problem)

    def tuned_chains(self, problem: Problem, num_chains: int) -> BMSVMState | None:
        """Return chains that the search for the lengthscale of a problem has left, or None."""
        tuned = self._tuned
        if tuned is None or tuned.problem is not problem or len(tuned.accept_prob) != num_chains:
            return None
        return tuned

    def _resolved(
        self, X: ArrayLike, y: ArrayLike, row_weights: ArrayLike | None, spare_rows: int
    ) -> dict[str, Any]:
        """Return the settings, with a lengthscale that is to be set from the data set."""
        method = self._settings["lengthscale"]
        if not isinstance(method, str) or method == "sample":
            if self._selection_options is not None:
                raise ValueError(
                    'lengthscale_options are for lengthscale="marginal-likelihood", "cv" and '
                    '"mode-cv"; '
                    f"got {self._selection_options!r} with lengthscale={method!r}"
                )
            return self._settings
        check_fixed(method, **{name: self._settings[name] for name in FOR_SAMPLING})
        from bmsvm.inference.evidence import EvidenceMaximum
        from bmsvm.inference.modes import ModeCrossValidation
        from bmsvm.inference.select import SELECTIONS, select_lengthscale  # which use this module

        if method not in SELECTIONS:
            raise ValueError(
                "lengthscale must be a positive number, one positive number per feature, "
                f'"sample", "marginal-likelihood", "cv" or "mode-cv"; got {method!r}'
            )
        model = {
            name: self._settings[name]
            for name in ("kernel", "coupling", "likelihood", "hyperparameters")
        }
        given = self._selection_options
        limited = isinstance(given, Mapping) and given.get("max_rows") is not None
        if self._settings["features"] is not None and not limited:  # all rows would be too many
            X, y, row_weights = _some_rows(X, y, row_weights)
        if self._settings["features"] is not None:
            spare_rows = 0
        model["row_weights"] = row_weights
        found = select_lengthscale(
            method, X, y, options=self._selection_options, spare_rows=spare_rows, **model
        )
        if isinstance(found, EvidenceMaximum):  # the chains are not part of what was found
            same_moves = self._settings["features"] is None and self.blocks == preset_blocks(
                "default", self._settings["likelihood"]
            )
            self._tuned = found.state if same_moves else None
            found = replace(found, state=None)
        self.lengthscale_selection = found
        if getattr(found, "interrupted", False):
            raise KeyboardInterrupt("interrupted while the lengthscale was chosen")
        settings = {**self._settings, "lengthscale": found.lengthscale}
        if isinstance(found, ModeCrossValidation) and self._settings["features"] is None:
            # The moves of low rank need tau free.
            settings["hyperparameters"] = found.hyperparameters
        return settings

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        """Start at the scores of section 5, with sigma2 and tau drawn from their priors.

        ``init_params`` may hold any of the sites ``scores``, ``noise_variance``, ``precision``.
        """
        problem = self.prepare(*model_args, **(model_kwargs or {}))
        self._sample_fn = self.sample

        unknown = set(init_params or {}) - INITIAL_SITES
        if unknown:
            raise ValueError(
                f"init_params may hold {sorted(INITIAL_SITES)}; got {sorted(unknown)} too"
            )

        def one_chain(key, init_params):
            key, key_noise, key_precision = jax.random.split(key, 3)
            given = init_params or {}
            noise = noise_prior(problem).sample(key_noise)
            precision = precision_prior(problem).sample(key_precision)
            scores = given.get("scores", perfect_scores(problem))
            position = Position(
                columns=to_columns(scores, problem.labels, problem.coupling),
                intercept=jnp.zeros(problem.n_columns, scores.dtype),
                weights=jnp.zeros(
                    (problem.factor.eigenvalues.shape[0], problem.n_columns), scores.dtype
                ),
                noise_variance=given.get("noise_variance", noise),
                precision=given.get("precision", precision),
                kernel=problem.first_kernel(),
            )
            for number, block in enumerate(self.blocks):
                if block.begin is not None:
                    there = jax.random.fold_in(key, BEGIN_STREAM + number)
                    position = block.begin(there, position, problem)
            return position, memories(self.blocks, position, problem), key

        if is_prng_key(rng_key):
            position, memory, key = one_chain(rng_key, init_params)
        else:
            position, memory, key = jax.vmap(one_chain)(rng_key, init_params)
        return _state(jnp.zeros((), jnp.int32), position, memory, {}, problem, num_warmup, key)

    def sample(self, state, model_args, model_kwargs):
        """Run one sweep: every block once, in order."""
        return sweep(state, self.blocks)

    def postprocess_fn(self, model_args, model_kwargs):
        """Give the scores their public name."""
        return lambda z: {name.lstrip("_"): value for name, value in z.items()}

    def get_diagnostics_str(self, state: BMSVMState) -> str:
        """Describe a sweep for the progress bar: acceptance, and steps where there are any."""
        text = f"acc. z {jnp.mean(state.accept_prob):.2f}"
        if jnp.any(state.num_steps > 0):
            text = (
                f"{jnp.mean(state.num_steps):.0f} steps of {jnp.mean(state.step_size):.2g}, {text}"
            )
        if state.problem.samples_kernel:
            text = f"{text}, theta {jnp.mean(state.lengthscale_accept_prob):.2f}"
        return text

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_prepared": None, "_tuned": None, "_sample_fn": None}
        if self._preset is not None:
            state["blocks"] = None  # closures, which do not pickle; the preset makes them again
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._preset is not None:
            self.blocks = self._preset_blocks()


def _concrete() -> AbstractContextManager[Any]:
    """Compute now: parallel chains and ArviZ prepare while tracing, and data are concrete.

    Elsewhere nothing is changed, or programs would be compiled once inside and once outside.
    """
    tracing = isinstance(jnp.zeros(()), jax.core.Tracer)
    return jax.ensure_compile_time_eval() if tracing else nullcontext()


def _some_rows(X: Any, y: Any, row_weights: Any) -> tuple[Any, Any, Any]:
    """At most :data:`SELECTION_ROWS` rows with labels and weights, each class in its proportion."""
    labels = np.asarray(y)
    if len(labels) <= SELECTION_ROWS:
        return X, y, row_weights
    chosen = representative_rows(labels, SELECTION_ROWS, np.random.default_rng(0))
    weights = None if row_weights is None else np.asarray(row_weights)[chosen]
    rows = X if isinstance(X, PiecewiseRows) else np.asarray(X)
    return rows[chosen], labels[chosen], weights


def _same(one: Any, other: Any) -> bool:
    """Whether two arguments hold the same data, or are the same where they are not held."""
    if one is None or other is None or in_pieces(one) or in_pieces(other):
        return one is other
    return np.array_equal(one, other)


def sweep(state: BMSVMState, blocks: Sequence[Block]) -> BMSVMState:
    """Every block once, in order: one chain, or as many as the state holds."""
    problem = state.problem
    phase = Phase(state.i, state.n_warmup)

    def one_chain(key, position, memory):
        key, *keys = jax.random.split(key, len(blocks) + 1)
        return *in_turn(blocks, keys, position, memory, problem, phase), key

    if not is_prng_key(state.rng_key):
        one_chain = jax.vmap(one_chain)
    position, memory, info, key = one_chain(state.rng_key, state.position, state.memory)
    return _state(state.i + 1, position, memory, info, problem, state.n_warmup, key)


def _scores(position: Position, problem: Problem) -> dict[str, jax.Array]:
    """Scores by the name that keeps them out of summaries; none where they are integrated out."""
    if position.columns is None:
        return {}
    return {"_scores": scores_of(position.columns, problem)}


def _state(i, position, memory, info, problem, n_warmup, key) -> BMSVMState:
    def sites(position):
        return {
            **problem.kernel_values(position.kernel),
            "noise_variance": position.noise_variance,
            "precision": position.precision,
            "intercept": class_vector(position.intercept, problem.coupling),
            **_scores(position, problem),
        }

    batch = position.precision.shape
    ones = jnp.ones(batch, position.precision.dtype)
    return BMSVMState(
        i=i,
        z=sites(position) if not batch else jax.vmap(sites)(position),
        position=position,
        accept_prob=info.get("accept_prob", ones),
        step_size=info.get("step_size", 0 * ones),
        num_steps=info.get("num_steps", jnp.zeros(batch, jnp.int32)),
        lengthscale_accept_prob=info.get("lengthscale_accept_prob", 0 * ones),
        memory=memory,
        problem=problem,
        n_warmup=jnp.asarray(n_warmup, jnp.int32),
        rng_key=key,
    )


def perfect_scores(problem: Problem) -> jax.Array:
    """Scores of a perfect fit, 1 at the label and -1/(c-1) elsewhere (section 5), shape (n, c)."""
    own = jax.nn.one_hot(problem.labels, problem.n_classes, dtype=problem.factor.basis.dtype)
    return (problem.n_classes * own - 1) / (problem.n_classes - 1)
