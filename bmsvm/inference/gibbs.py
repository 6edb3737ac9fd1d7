"""The NumPyro kernel, by which ``numpyro.infer.MCMC`` runs the samplers of this package.

It holds no data: ``run(key, X, y)`` passes them, and the state of a chain holds all that the chain
needs. :func:`bmsvm.run_chains` runs the same kernel without compiling again for each run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.infer.gibbs import GIBBS_SITES_KWARG
from numpyro.infer.mcmc import MCMCKernel

from bmsvm._validation import check_choice, check_rows_and_labels
from bmsvm.inference.algorithm import Algorithm
from bmsvm.inference.larger_model import MACHINE_SITES, check_larger_model
from bmsvm.inference.samplers import HMC, Paper, Sampler, Table, as_sampler, paper_sampler
from bmsvm.inference.state import BMSVMState, advance, begin
from bmsvm.kernels.functions import Gaussian, Kernel, KernelFn, Parametric, as_kernel
from bmsvm.kernels.low_rank import Approximation
from bmsvm.models.couplings import COUPLINGS
from bmsvm.models.hyperparameters import DEFAULT, PAPER, Hyperparameters
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.models.numpyro_model import observation_model, position_of_sites
from bmsvm.models.prepare import as_lengthscale, chooses_lengthscale, prepare
from bmsvm.models.problem import Problem, check_precision
from bmsvm.models.theta import Sampled, is_sampled


class BMSVMGibbs(MCMCKernel):
    """Sampler of the Bayesian multicategory SVM, for ``numpyro.infer.MCMC``.

    Parameters
    ----------
    kernel, lengthscale, coupling, likelihood, hyperparameters, approximation
        The model; see :func:`bmsvm.prepare`. A prepared problem has its own settings. A setting
        other than the default is then an error, unless the problem is known to have it.
    sampler
        ``"auto"``, ``"hmc"``, ``"gibbs"``, ``"paper"``, ``"table"``, or an object of
        :mod:`bmsvm.inference.samplers`.
    model
        The larger model, for use as a block of ``numpyro.infer.Gibbs``; docs/howto.md has an
        example. Its first argument is the problem, whose theta must be fixed. The kernel then
        samples :data:`bmsvm.inference.MACHINE_SITES`, and starts at their ``init_params``, by
        default draws from their prior. The larger model may depend on these sites only through
        ``hierarchical_model(given(problem, sites), integrate_weights=False)``.
    given
        ``given(problem, sites) -> problem`` returns the problem given the other sites of the larger
        model, for example with other hyperparameters. Default: the problem does not depend on them.

    Examples
    --------
    >>> import jax
    >>> from numpyro.infer import MCMC
    >>> from bmsvm import BMSVMGibbs
    >>> from bmsvm.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> X = (X - X.mean(0)) / X.std(0)
    >>> mcmc = MCMC(BMSVMGibbs(lengthscale=3.5), num_warmup=50, num_samples=50, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X, y)
    >>> mcmc.get_samples()["scores"].shape
    (50, 178, 3)
    """

    sample_field = "z"

    def __init__(
        self,
        kernel: Kernel | KernelFn | str = "gaussian",
        *,
        lengthscale: ArrayLike | Sampled | str | None = None,
        coupling: str = "sum_to_zero",
        likelihood: str = "normalized",
        hyperparameters: Hyperparameters = DEFAULT,
        approximation: Approximation | None = None,
        sampler: Sampler | str = "auto",
        model: Callable[..., Any] | None = None,
        given: Callable[[Problem, Mapping[str, jax.Array]], Problem] | None = None,
    ) -> None:
        if given is not None and model is None:
            raise ValueError("model must be given with given: the model of the other blocks")
        check_choice("coupling", coupling, COUPLINGS)
        check_choice("likelihood", likelihood, LIKELIHOODS)
        if isinstance(lengthscale, str) or chooses_lengthscale(lengthscale):
            as_lengthscale(lengthscale, as_kernel(kernel))
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.coupling = coupling
        self.likelihood = likelihood
        self.hyperparameters = hyperparameters
        self.approximation = approximation
        self.sampler = sampler
        self.given = given
        self._larger = model
        as_sampler(sampler)  # raises early
        self._sample_fn: Callable[..., Any] | None = (
            None  # MCMC reads it to see whether init was called
        )

    @classmethod
    def paper(cls, *, printed_ratio: bool = False, **settings: Any) -> BMSVMGibbs:
        """Return the sampler and the model of sections 3, 4.1 and 5 as printed.

        Hinge likelihood (11), the independent columns of (13)-(19), the hyperparameters of section
        5, and the sweep of section 4.1. ``lengthscale`` must be given; ``"sample"`` has the paper's
        uniform prior.

        Parameters
        ----------
        printed_ratio
            Whether theta moves by the ratio printed in section 4.1, which does not leave the
            posterior invariant; see :meth:`bmsvm.BMSVMClassifier.paper`.
        **settings
            Arguments of the class that replace the paper's.
        """
        paper: dict[str, Any] = {
            "coupling": "independent",
            "likelihood": "hinge",
            "hyperparameters": PAPER,
            "sampler": paper_sampler(printed_ratio, settings),
        }
        return cls(**{**paper, **settings})

    @property
    def samples_theta(self) -> bool:
        """Whether the kernel's parameters are sampled."""
        return is_sampled(self.lengthscale) or isinstance(self.kernel, Parametric)

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields that ``MCMC`` stores for every draw."""
        theta = ("lengthscale_accept_prob",) if self.samples_theta else ()
        return (self.sample_field, "accept_prob", "step_size", *theta)

    @property
    def model(self) -> Callable[..., Any]:
        """The larger model; else the model of the labels given the scores, for ArviZ."""
        return observation_model(self._labels) if self._larger is None else self._larger

    @property
    def is_block(self) -> bool:
        """Whether the kernel is a block of a larger model."""
        return self._larger is not None

    def wrap_model(self, wrapper: Callable[..., Any]) -> BMSVMGibbs:
        """Return a block with the larger model wrapped, as ``numpyro.infer.Gibbs`` asks."""
        kernel = copy.copy(self)
        kernel._larger = wrapper(self.model)
        return kernel

    def _labels(
        self, X: Any, y: Any = None, row_weights: Any = None, spare_rows: int = 0
    ) -> tuple[jax.Array, int, str, jax.Array | None]:
        """Labels (n,), the number of classes, the likelihood and the weights of the rows."""
        if isinstance(X, Problem):
            return X.labels, X.n_classes, X.likelihood, X.row_weights
        with _concrete():
            _, classes, labels = check_rows_and_labels(X, y)
            weights = None
            if row_weights is not None or spare_rows:
                given = np.ones(len(labels)) if row_weights is None else np.asarray(row_weights)
                weights = jnp.asarray(np.append(given, np.zeros(spare_rows)))
            labels = np.append(labels, np.zeros(spare_rows, int))
        return jnp.asarray(labels, jnp.int32), len(classes), self.likelihood, weights

    def prepare(
        self,
        X: ArrayLike | Problem,
        y: ArrayLike | None = None,
        row_weights: ArrayLike | None = None,
        spare_rows: int = 0,
    ) -> Problem:
        """Check and factor the data; a problem is returned unchanged.

        To sample a problem with :func:`bmsvm.run_chains` or ``MCMC``, give only a sampler to
        ``BMSVMGibbs``: the settings of the model are those of the problem. So are the labels, the
        weights of the rows and the spare rows.
        """
        if isinstance(X, Problem):
            given = {"y": y, "row_weights": row_weights, "spare_rows": spare_rows or None}
            for name, value in given.items():
                if value is not None:
                    raise ValueError(
                        f"{name} must not be given with a prepared problem, which has its own: "
                        "give it to bmsvm.prepare"
                    )
            return X
        if y is None:
            raise ValueError("y must be given: run(key, X, y), or run(key, problem)")
        with _concrete():
            return prepare(
                X,
                y,
                kernel=self.kernel,
                lengthscale=self.lengthscale,
                coupling=self.coupling,
                likelihood=self.likelihood,
                hyperparameters=self.hyperparameters,
                approximation=self.approximation,
                row_weights=row_weights,
                spare_rows=spare_rows,
            )

    def algorithm(self, problem: Problem) -> Algorithm:
        """Return the Markov chain that samples a problem; HMC if ``"auto"`` means ``Table``."""
        sampler = self.sampler_of(problem)
        by_default = isinstance(sampler, Table) and self.sampler == "auto"
        return (HMC() if by_default else sampler).algorithm(problem)

    def sampler_of(self, problem: Problem) -> Sampler:
        """Return the sampler object for a problem, ``"auto"`` resolved."""
        return as_sampler(
            self.sampler,
            likelihood=problem.likelihood,
            coupling=problem.coupling,
            off_grid=problem.family is not None,
        )

    def check_settings(self, problem: Problem) -> None:
        """Raise ``ValueError`` for a setting that may contradict a prepared problem.

        A problem does not store its kernel and lengthscale, so any given here is an error.
        """
        theta = self.samples_theta and problem.samples_kernel
        family = isinstance(self.kernel, Parametric) and problem.family is not None
        hyper = jax.tree.leaves(self.hyperparameters), jax.tree.leaves(problem.hyper)
        agrees = {
            "kernel": family or as_kernel(self.kernel) == Gaussian(),
            "lengthscale": theta or self.lengthscale is None,
            "coupling": self.coupling in ("sum_to_zero", problem.coupling),
            "likelihood": self.likelihood in ("normalized", problem.likelihood),
            "hyperparameters": self.hyperparameters == DEFAULT or np.allclose(*hyper),
            "approximation": self.approximation is None,
        }
        for name, same in agrees.items():
            if not same:
                raise ValueError(
                    f"{name} must be given to bmsvm.prepare and not to BMSVMGibbs if a prepared "
                    f"problem is sampled, which has its own: sample it with "
                    f"BMSVMGibbs(sampler=...); got {getattr(self, name)!r}"
                )

    def _problem(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Problem:
        """Return the problem from the model's arguments and the other sites of a larger model."""
        kwargs = dict(kwargs or {})
        sites = kwargs.pop(GIBBS_SITES_KWARG, {})
        if self._larger is None:
            return self.prepare(*args, **kwargs)
        problem = args[0] if args else kwargs.get("problem")
        if not isinstance(problem, Problem):
            raise ValueError(
                "the first argument of a model with a block BMSVMGibbs(model=...) must be a "
                f"problem of bmsvm.prepare; got {type(problem).__name__}"
            )
        return problem if self.given is None else self.given(problem, sites)

    def init(
        self,
        rng_key: jax.Array,
        num_warmup: int,
        init_params: Mapping[str, Any] | None,
        model_args: Any,
        model_kwargs: Any,
    ) -> BMSVMState:
        """Start chains; ``init_params`` may contain the sites that the algorithm can start at.

        For a block of a larger model these are :data:`bmsvm.inference.MACHINE_SITES`.
        """
        kwargs = model_kwargs or {}
        first = model_args[0] if model_args else kwargs.get("X", kwargs.get("problem"))
        if isinstance(first, Problem):
            self.check_settings(first)
            if self.is_block:
                if first.samples_kernel:
                    raise ValueError("model needs a problem whose lengthscale is fixed")

                def problem_given(sites: Mapping[str, jax.Array]) -> Problem:
                    return self._problem(model_args, {**kwargs, GIBBS_SITES_KWARG: sites})

                with _concrete():
                    check_larger_model(self.model, problem_given, model_args, kwargs)
        problem = self._problem(model_args, kwargs)
        return self.start(rng_key, num_warmup, init_params, problem)

    def start(
        self,
        rng_key: jax.Array,
        num_warmup: int,
        init_params: Mapping[str, Any] | None,
        problem: Problem,
    ) -> BMSVMState:
        """Start chains of a problem that was prepared with the settings of this kernel."""
        check_precision(problem)
        self._check_printed_ratio(problem)
        algorithm = self.algorithm(problem)
        self._sample_fn = self.sample
        start, composed = dict(init_params or {}), self.is_block
        known = MACHINE_SITES if composed else algorithm.startable
        unknown = set(start) - set(known)
        if unknown:
            raise ValueError(f"init_params may hold {sorted(known)}; got {sorted(unknown)} too")
        moving = begin(rng_key, num_warmup, start, problem, algorithm=algorithm, composed=composed)
        return moving._replace(problem=problem)

    def _check_printed_ratio(self, problem: Problem) -> None:
        """Raise ``ValueError`` if K is singular: the printed ratio of theta contains |K|."""
        sampler = self.sampler_of(problem)
        if not (isinstance(sampler, Paper) and sampler.printed_ratio and problem.samples_kernel):
            return
        with _concrete():
            rank = int(problem.rank)
        if rank < problem.n_rows:
            raise ValueError(
                "printed_ratio needs rows whose Gram matrix is not singular where theta starts, at "
                f"the median distance; its rank is {rank} with {problem.n_rows} rows, by repeated "
                "rows or few features: leave repeated rows out, or use printed_ratio=False"
            )

    def sample(self, state: BMSVMState, model_args: Any, model_kwargs: Any) -> BMSVMState:
        """Run one sweep."""
        return self.advance(state, self.algorithm(state.problem))

    def advance(self, state: BMSVMState, algorithm: Algorithm) -> BMSVMState:
        """Run one sweep of an algorithm."""
        return advance(state, algorithm, composed=self.is_block)

    def refresh(self, state: BMSVMState, model_args: Any, model_kwargs: Any) -> BMSVMState:
        """Return the state given other values of the sites that the model is conditioned on.

        In a larger model the machine's own sites stay, and the position is recomputed from them.
        """
        problem = self._problem(model_args, model_kwargs)
        if self._larger is None:
            return state._replace(problem=problem)
        chain = state.chain
        position = position_of_sites(state.z, chain.position, problem)
        return state._replace(problem=problem, chain=chain._replace(position=position))

    def get_constrain_fn(self, model_args: Any, model_kwargs: Any) -> Callable[..., Any]:
        """Return the map from the state's sites to the model's: they are the same."""
        return lambda z: z

    def postprocess_fn(self, model_args: Any, model_kwargs: Any) -> Callable[..., Any]:
        """Give scores and weights their public names."""
        return lambda z: {name.lstrip("_"): value for name, value in z.items()}

    def get_diagnostics_str(self, state: BMSVMState) -> str:
        """Describe a sweep for the progress bar."""
        text = f"acc. prob={jnp.mean(state.accept_prob):.2f}"
        if jnp.any(state.num_steps > 0):
            steps, size = jnp.mean(state.num_steps), jnp.mean(state.step_size)
            text = f"{steps:.0f} steps of size {size:.2g}, {text}"
        if state.problem.samples_kernel:
            text = f"{text}, theta {jnp.mean(state.lengthscale_accept_prob):.2f}"
        return text

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sample_fn": None}


def _concrete() -> AbstractContextManager[Any]:
    """Evaluate at once while JAX is tracing, as in calls by parallel chains and ArviZ.

    Outside of tracing nothing changes, so that no program is compiled twice.
    """
    tracing = isinstance(jnp.zeros(()), jax.core.Tracer)
    return jax.ensure_compile_time_eval() if tracing else nullcontext()
