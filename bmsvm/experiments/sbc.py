"""Simulation-based calibration: whether what is sampled is the posterior.

Parameters, scores and labels are drawn together (:mod:`bmsvm.experiments.simulate`), the sampler
is run on the labels, and each parameter is ranked among its draws (Talts et al., 2018). If the
sampler is right, ranks are uniform, whatever the prior and however little the labels say. All
replications of a piece are lanes of one compiled program; pieces are kept on disk, and a run that
was stopped goes on.

``python -m bmsvm.experiments.sbc`` runs all configurations: two couplings, three likelihoods, theta
fixed and sampled, exact and truncated factors of the kernel; and what goes with features of low
rank: landmarks and waves, under the default preset and under ``large``.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import joblib
import numpy as np
from tqdm.auto import tqdm

from bmsvm._validation import check_choice, check_count
from bmsvm.experiments.ecdf import p_value
from bmsvm.experiments.simulate import LIVELY, Joint, draw_joint
from bmsvm.experiments.store import read_cell, write_cell, write_text
from bmsvm.features import KINDS, LowRank
from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState
from bmsvm.inference.laplace import with_reference
from bmsvm.inference.presets import LARGE
from bmsvm.kernels import Factor
from bmsvm.models.couplings import COUPLINGS, class_vector, to_columns
from bmsvm.models.hierarchy import Position, latent, log_likelihood, scores_of
from bmsvm.models.kernel_parameters import masked_design
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.models.problem import Problem, prepare

__all__ = [
    "CONFIGURATIONS",
    "Configuration",
    "Settings",
    "problem_of",
    "ranks_of",
    "run_piece",
    "summarize",
]

N_ROWS, N_CLASSES = 8, 3
THETA = 1.5
THETAS = np.geomspace(0.5, 4.0, 5)
RANK = 3
"""Columns of a truncated factor."""

MORE_SWEEPS = 4
"""How many times as many sweeps under ``probit``, whose scores are moved one by one, and under
``large``, whose reference suits many rows."""

FALSE_ALARM = 0.01
"""Probability that a correct sampler fails anywhere in a run."""


class Configuration(NamedTuple):
    """What is sampled.

    theta
        ``"fixed"`` or ``"sampled"``, on a grid.
    features
        ``"exact"``; ``"truncated"``: the leading columns of the factor, a low-rank kernel; or a
        kind of :class:`bmsvm.LowRank`.
    preset
        Of the sampler; ``"large"`` has a model of its own, see :mod:`bmsvm.experiments.simulate`.
    """

    likelihood: str
    coupling: str
    theta: str
    features: str
    preset: str = "default"

    @property
    def name(self) -> str:
        """All of it in one word."""
        return "-".join(self)


CONFIGURATIONS = (
    *(
        Configuration(*each)
        for each in itertools.product(
            LIKELIHOODS, COUPLINGS, ("fixed", "sampled"), ("exact", "truncated")
        )
    ),
    *(Configuration(each, "sum_to_zero", "fixed", "nystrom") for each in LIKELIHOODS),
    *(
        Configuration(*each, "large")
        for each in itertools.product(
            ("hinge", "normalized"), ("sum_to_zero",), ("fixed",), ("nystrom", "fourier")
        )
    ),
)
"""All that ships and can be simulated; low rank goes with ``sum_to_zero`` and theta fixed only."""


@dataclass(frozen=True)
class Settings:
    """How long chains run, and how many replications make a piece.

    warmup, draws, thinning
        Sweeps that are dropped, draws that are kept, sweeps of each; where chains are slower,
        :data:`MORE_SWEEPS` times as many.
    lanes
        Replications of a piece.
    seed
        Of everything.
    """

    warmup: int = 200
    draws: int = 63
    thinning: int = 6
    lanes: int = 250
    seed: int = 0


def problem_of(configuration: Configuration) -> Problem:
    """Return the model of a configuration; its labels stand for those that are drawn."""
    rows = np.random.default_rng(1).normal(size=(N_ROWS, 2))
    labels = np.arange(N_ROWS) % N_CLASSES
    sampled = configuration.theta == "sampled"
    check_choice("features", configuration.features, ("exact", "truncated", *KINDS))
    low = configuration.features in KINDS
    problem = prepare(
        rows,
        labels,
        lengthscale="sample" if sampled else THETA,
        lengthscale_grid=THETAS if sampled else None,
        coupling=configuration.coupling,
        likelihood=configuration.likelihood,
        hyperparameters=LIVELY,
        features=LowRank(configuration.features, rank=RANK) if low else None,
    )
    if configuration.features == "truncated":
        problem = _truncated(problem, RANK)
    return with_reference(problem) if configuration.preset == LARGE else problem


def _truncated(problem: Problem, rank: int) -> Problem:
    """Leave the leading columns of every factor; designs follow when labels are known."""

    def leading(factor: Factor) -> Factor:
        return Factor(factor.basis[..., :rank], factor.eigenvalues[..., :rank])

    problem = replace(problem, factor=leading(problem.factor))
    if problem.grid is not None:
        grid = problem.grid._replace(factors=leading(problem.grid.factors))
        problem = replace(problem, grid=grid)
    varied = _varied(problem, np.asarray(problem.labels)[None])
    return _lane(problem, jax.tree.map(lambda leaf: leaf[0], varied))


def _varied(problem: Problem, labels: np.ndarray) -> dict[str, Any]:
    """Return what labels (lanes, n) change of a problem, with a leading axis of lanes."""
    varied: dict[str, Any] = {"labels": jnp.asarray(labels, problem.labels.dtype)}
    if problem.reference is not None:
        bare = replace(problem, reference=None)
        references = [
            with_reference(replace(bare, labels=each)).reference for each in varied["labels"]
        ]
        varied["reference"] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *references)
    if problem.coupling != "independent":
        return varied

    def designs(factor: Factor, each: np.ndarray) -> Any:
        return masked_design(factor, each, problem.n_classes)

    host = jax.tree.map(np.asarray, problem.factor)
    lanes = [designs(host, each) for each in labels]
    varied["masked"] = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *lanes)
    if problem.grid is not None:
        pairs = zip(*jax.tree.map(np.asarray, problem.grid.factors), strict=True)
        factors = [Factor(basis, eigenvalues) for basis, eigenvalues in pairs]
        lanes = [
            jax.tree.map(lambda *leaves: np.stack(leaves), *(designs(f, each) for f in factors))
            for each in labels
        ]
        varied["grid_masked"] = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *lanes)
    return varied


def _lane(problem: Problem, varied: dict[str, Any]) -> Problem:
    """Return the problem of one lane."""
    fields = dict(varied)
    masked = fields.pop("grid_masked", None)
    if masked is not None:
        fields["grid"] = cast(Any, problem.grid)._replace(masked=masked)
    return replace(problem, **fields)


def watched(position: Position, problem: Problem) -> dict[str, jax.Array]:
    """Numbers that are ranked, by name.

    The log likelihood sees the labels too, and so what parameters alone would hide.
    """
    here = problem.at(position.kernel)
    functions = class_vector(latent(position.intercept, position.weights, here), here.coupling)
    numbers = {
        "log sigma2": jnp.log(position.noise_variance),
        "log tau": jnp.log(position.precision),
        "b 1": class_vector(position.intercept, here.coupling)[0],
        "f 1,1": functions[0, 0],
        f"f {here.n_rows},2": functions[-1, 1],
        "z 2,3": scores_of(position.columns, here)[1, 2],
    }
    if problem.likelihood != "probit":  # where it is zero
        numbers["log L"] = jnp.sum(log_likelihood(position.columns, here))
    for name, value in problem.kernel_values(position.kernel).items():
        numbers[f"log {name}"] = jnp.log(value)
    return numbers


def _position(state: BMSVMState, problem: Problem) -> Position:
    """Return all parameters of a draw; weights or scores that are integrated out are drawn."""
    position = state.position._replace(weights=state.weights)
    if position.columns is not None:
        return position
    columns = to_columns(state.scores, problem.labels, problem.coupling)
    return position._replace(columns=columns)


@functools.cache
def _sampler(configuration: Configuration) -> BMSVMGibbs:
    """Return the sampler of a configuration, always the same, whose programs are found again."""
    return BMSVMGibbs(
        lengthscale="sample" if configuration.theta == "sampled" else 1.0,
        likelihood=configuration.likelihood,
        preset=configuration.preset,
    )


@functools.partial(jax.jit, static_argnames=("sampler", "draws"))
def _replicate(
    keys: jax.Array,
    truth: Position,
    varied: dict[str, Any],
    problem: Problem,
    warmup: jax.Array,
    thinning: jax.Array,
    *,
    sampler: BMSVMGibbs,
    draws: int,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Numbers at the truth, shape (lanes,), and in the draws of a chain, (lanes, draws)."""

    def one(key, truth, varied):
        here = _lane(problem, varied)
        state = sampler.init(key, warmup, None, (here,), {})

        def sweep(_, state):
            return sampler.sample(state, (), {})

        def draw(state, _):
            state = jax.lax.fori_loop(0, thinning, sweep, state)
            return state, watched(_position(state, here), here)

        state = jax.lax.fori_loop(0, warmup, sweep, state)
        return watched(truth, here), jax.lax.scan(draw, state, length=draws)[1]

    return jax.vmap(one)(keys, truth, varied)


def ranks_of(rng: np.random.Generator, truth: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Ranks of truths (lanes,) among draws (lanes, L), in 0, ..., L; ties are broken at random."""
    below = np.sum(draws < truth[:, None], axis=1)
    equal = np.sum(draws == truth[:, None], axis=1)
    return below + rng.integers(0, equal + 1)


def run_piece(configuration: Configuration, settings: Settings, number: int) -> dict[str, Any]:
    """Run one piece of replications: ``ranks`` of each number, and how alike neighbours are.

    ``alike`` is the correlation of neighbouring draws of a chain, -1/L if they are independent.
    """
    entropy = [settings.seed, zlib.crc32(configuration.name.encode()), number]
    rng = np.random.default_rng(entropy)
    slower = configuration.likelihood == "probit" or configuration.preset == LARGE
    longer = MORE_SWEEPS if slower else 1
    with jax.enable_x64(True):
        problem = problem_of(configuration)
        joint: Joint = draw_joint(rng, settings.lanes, problem)
        key = jax.random.key(int(rng.integers(2**31)))
        truth, draws = _replicate(
            jax.random.split(key, settings.lanes),
            jax.tree.map(jnp.asarray, joint.position),
            _varied(problem, joint.labels),
            problem,
            jnp.asarray(settings.warmup * longer),
            jnp.asarray(settings.thinning * longer),
            sampler=_sampler(configuration),
            draws=settings.draws,
        )
    ranks, alike = {}, {}
    for name, values in draws.items():
        chain = np.asarray(values)
        if not np.all(np.isfinite(chain)):
            raise FloatingPointError(f"{configuration.name}: {name} is not finite")
        ranks[name] = ranks_of(rng, np.asarray(truth[name]), chain).tolist()
        within = chain - chain.mean(1, keepdims=True)
        alike[name] = float(np.sum(within[:, 1:] * within[:, :-1]) / np.sum(within**2))
    return {"ranks": ranks, "alike": alike}


class _Piece(NamedTuple):
    """A piece of a run, as a file knows it."""

    configuration: Configuration
    number: int

    @property
    def name(self) -> str:
        return f"{self.configuration.name}-{self.number:03d}"


def run_all(
    configurations: Sequence[Configuration],
    settings: Settings,
    pieces: int,
    output: Path,
    *,
    jobs: int = 1,
    progress: bool = True,
) -> dict[Configuration, dict[str, Any]]:
    """Run what is not on disk yet; all ranks of each configuration.

    Work goes through joblib, whose backends carry it to other machines.

    Parameters
    ----------
    configurations, settings
        What to run, and how long.
    pieces
        Pieces of each configuration.
    output
        Folder of the finished pieces.
    jobs
        Pieces at a time.
    progress
        Whether to show a progress bar.
    """
    check_count("pieces", pieces)
    wanted = [_Piece(each, i) for each in configurations for i in range(pieces)]
    stored = asdict(settings)
    found = {piece: read_cell(output, piece, stored, needs="ranks") for piece in wanted}
    left = [piece for piece in wanted if found[piece] is None]
    parallel = joblib.Parallel(jobs, prefer="threads", return_as="generator_unordered")
    work = (joblib.delayed(_numbered)(piece, settings) for piece in left)
    with tqdm(total=len(wanted), disable=not progress) as bar:
        bar.update(len(wanted) - len(left))
        for piece, numbers in parallel(work):
            write_cell(output, piece, {"settings": stored, **numbers})
            found[piece] = numbers
            bar.update()
    merged: dict[Configuration, dict[str, Any]] = {}
    for each in configurations:
        parts = [cast(dict[str, Any], found[_Piece(each, i)]) for i in range(pieces)]
        names = parts[0]["ranks"]
        merged[each] = {
            "ranks": {n: np.concatenate([part["ranks"][n] for part in parts]) for n in names},
            "alike": {n: float(np.mean([part["alike"][n] for part in parts])) for n in names},
        }
    return merged


def _numbered(piece: _Piece, settings: Settings) -> tuple[_Piece, dict[str, Any]]:
    return piece, run_piece(piece.configuration, settings, piece.number)


def summarize(merged: dict[Configuration, dict[str, Any]], n_values: int) -> list[dict[str, Any]]:
    """One line for each configuration: p-values, the least, and whether it passes.

    A configuration passes if none of its p-values is below :data:`FALSE_ALARM` divided by the
    number of all p-values (Bonferroni).
    """
    lines = []
    total = sum(len(found["ranks"]) for found in merged.values())
    for configuration, found in merged.items():
        p = {name: p_value(ranks, n_values) for name, ranks in found["ranks"].items()}
        least = min(p, key=lambda name: p[name])
        alike = max(found["alike"], key=lambda name: found["alike"][name])
        lines.append(
            {
                **configuration._asdict(),
                "replications": len(next(iter(found["ranks"].values()))),
                "p_values": p,
                "least": least,
                "passes": p[least] >= FALSE_ALARM / total,
                "alike": alike,
                "largest_alike": found["alike"][alike],
            }
        )
    return lines


def markdown(lines: list[dict[str, Any]]) -> str:
    """Write the summary as a table."""
    total = sum(len(line["p_values"]) for line in lines)
    rows = [
        "| likelihood | coupling | theta | factor | preset | least p-value, of "
        "| times all, at most 1 | verdict | draws alike |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        p = line["p_values"][line["least"]]
        cells = [
            *(line[name] for name in ("likelihood", "coupling", "theta", "features", "preset")),
            f"{p:.2g}, {line['least']}",
            f"{min(1.0, p * total):.2g}",
            "passes" if line["passes"] else "**fails**",
            f"{line['largest_alike']:.2f}, {line['alike']}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this module; 1 where a configuration fails."""
    parser = argparse.ArgumentParser(
        prog="python -m bmsvm.experiments.sbc", description="Simulation-based calibration."
    )
    parser.add_argument(
        "--output", type=Path, default=Path("sbc-output"), help="default: %(default)s"
    )
    parser.add_argument("--pieces", type=int, default=4, help="of each; default: %(default)s")
    for name, value in asdict(Settings()).items():
        parser.add_argument(f"--{name}", type=int, default=value, help="default: %(default)s")
    parser.add_argument(
        "--only", default="", help="configurations whose names have one of these, comma-separated"
    )
    parser.add_argument("--preset", help="of the sampler, instead of default")
    parser.add_argument(
        "--jobs", type=int, default=1, help="pieces at a time; default: %(default)s"
    )
    parser.add_argument("--no-figure", action="store_true", help="do without Matplotlib")
    given = parser.parse_args(arguments)
    chosen = list(CONFIGURATIONS)
    if given.preset is not None:
        chosen = [e._replace(preset=given.preset) for e in chosen if e.preset == "default"]
    chosen = [each for each in chosen if any(part in each.name for part in given.only.split(","))]
    if not chosen:
        parser.error(f"--only: no configuration has {given.only!r} in its name")
    settings = Settings(**{name: getattr(given, name) for name in asdict(Settings())})
    merged = run_all(chosen, settings, given.pieces, given.output, jobs=given.jobs)
    lines = summarize(merged, settings.draws + 1)
    write_text(given.output / "sbc.json", json.dumps(lines, indent=1) + "\n")
    write_text(given.output / "sbc.md", markdown(lines))
    if not given.no_figure:
        from bmsvm.experiments.sbc_figure import draw_figure

        ranks = {each: found["ranks"] for each, found in merged.items()}
        draw_figure(ranks, settings.draws + 1, given.output / "sbc.png")
    print(markdown(lines), end="")
    return 0 if all(line["passes"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
