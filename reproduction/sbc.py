"""Simulation-based calibration: tests whether the sampler samples the posterior.

Parameters, scores and labels are drawn together (:mod:`reproduction.simulate`), the sampler is run
on the labels, and each parameter is ranked among its draws (Talts et al., 2018). If the sampler is
right, ranks are uniform, whatever the prior and however little the labels say. Labels among which a
class does not occur are drawn again: that leaves the posterior given the labels as it is.

``python -m reproduction.sbc`` runs all configurations: two couplings, two likelihoods, theta
fixed and sampled, exact and truncated factors of the kernel; and approximations of low rank.
``squared`` is drawn from its table too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import operator
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from bmsvm.models.couplings import COUPLINGS, class_map
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.plots.style import class_style
from reproduction.cells import run_cells, write_text
from reproduction.ecdf import counts_below, p_value, simultaneous_band
from reproduction.fits import (
    N_CLASSES,
    THETAS,
    Configuration,
    calibration_draws,
    calibration_problem,
)
from reproduction.simulate import Joint, draw_joint, likelihood_of_rows

__all__ = ["CONFIGURATIONS", "FULL", "QUICK", "Settings", "draw_ranks", "main", "ranks_of"]

CHAINED = tuple(name for name in LIKELIHOODS if name != "squared")
"""Likelihoods that are sampled by chains alone."""

CONFIGURATIONS = (
    *(
        Configuration(*each)
        for each in itertools.product(
            CHAINED, COUPLINGS, ("fixed", "sampled"), ("exact", "truncated")
        )
    ),
    *(
        Configuration(likelihood, "sum_to_zero", theta, kind)
        for likelihood, theta, kind in itertools.product(
            CHAINED, ("fixed", "sampled"), ("nystrom", "fourier")
        )
    ),
    *(
        Configuration("squared", "sum_to_zero", *each)
        for each in itertools.product(
            ("fixed", "sampled"), ("exact", "truncated"), ("table", "hmc")
        )
    ),
)
"""All that ships and can be simulated; low rank goes with ``sum_to_zero`` only.
``squared`` with ``independent`` cannot: hardly a draw of the prior would be kept."""

QUICK_NAMES = ("normalized-sum_to_zero-sampled-exact-hmc", "hinge-independent-fixed-truncated")

FALSE_ALARM = 0.01
"""Probability that a correct sampler fails anywhere in a run."""

BAND = 0.05
"""Probability that a curve of uniform ranks leaves its band in the figure."""


class Settings(NamedTuple):
    """Sweeps that are dropped, draws that are kept, sweeps of each, and replications."""

    warmup: int
    draws: int
    thinning: int
    replications: int


FULL = Settings(warmup=200, draws=63, thinning=6, replications=1000)
QUICK = Settings(warmup=80, draws=31, thinning=4, replications=200)


def quantities(
    draws: Mapping[str, np.ndarray], labels: np.ndarray, likelihood: str
) -> dict[str, np.ndarray]:
    """Return the numbers that are ranked, by name, each of shape (N, s).

    The log likelihood depends on the labels too, and so shows errors that parameters alone hide.

    Parameters
    ----------
    draws
        Of N chains: parameters (N, s), scores and functions (N, s, n, c), intercept (N, s, c).
    labels
        Shape (N, n).
    likelihood
        Of the model.
    """
    scores, functions = draws["scores"], draws["functions"]
    found = {
        "log sigma2": np.log(draws["noise_variance"]),
        "log tau": np.log(draws["precision"]),
        "b 1": draws["intercept"][..., 0],
        "f 1,1": functions[..., 0, 0],
        f"f {functions.shape[-2]},2": functions[..., -1, 1],
        "z 2,3": scores[..., 1, 2],
    }
    given = np.broadcast_to(labels[:, None], scores.shape[:-1])
    found["log L"] = np.log(likelihood_of_rows(scores, given, likelihood)).sum(axis=-1)
    if "lengthscale" in draws:
        found["log lengthscale"] = np.log(draws["lengthscale"])
    return found


def truths(joint: Joint, coupling: str) -> dict[str, np.ndarray]:
    """Return N simulated truths in the form of draws of chains, s being 1."""
    position, to_classes = joint.position, class_map(coupling, N_CLASSES)
    columns = np.asarray(position.columns)
    scores = columns @ to_classes
    if coupling == "independent":  # eq. (12)
        own = joint.labels[..., None] == np.arange(N_CLASSES)
        scores = np.where(own, -columns.sum(axis=-1, keepdims=True), columns)
    found = {
        "noise_variance": position.noise_variance,
        "precision": position.precision,
        "intercept": position.intercept @ to_classes,
        "functions": joint.functions @ to_classes,
        "scores": scores,
    }
    if position.kernel is not None:
        found["lengthscale"] = THETAS[np.asarray(position.kernel)]
    return {name: np.asarray(value)[:, None] for name, value in found.items()}


def simulated(rng: np.random.Generator, size: int, configuration: Configuration) -> Joint:
    """Draw from the joint distribution, given that every class occurs."""
    problem = calibration_problem(configuration, np.arange(configuration.n_rows) % N_CLASSES)
    parts: list[Joint] = []
    while sum(len(part.labels) for part in parts) < size:
        joint = draw_joint(rng, size, problem)
        keep = np.array([len(np.unique(each)) == N_CLASSES for each in joint.labels])
        parts.append(jax.tree.map(operator.itemgetter(keep), joint))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:size], *parts)


def ranks_of(rng: np.random.Generator, truth: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Ranks of truths (N,) among draws (N, L), in 0, ..., L; ties are broken at random."""
    below = np.sum(draws < truth[:, None], axis=1)
    equal = np.sum(draws == truth[:, None], axis=1)
    return below + rng.integers(0, equal + 1)


def draw_ranks(configuration: Sequence[str], settings: Sequence[int]) -> dict[str, Any]:
    """Simulate and sample: ``ranks`` of each number, and the correlation of successive draws.

    ``correlation`` is -1/L where the draws of a chain are independent.
    """
    configuration = Configuration(*configuration)
    warmup, draws, thinning, replications = settings
    rng = np.random.default_rng(zlib.crc32(configuration.name.encode()))
    with jax.enable_x64(True):
        joint = simulated(rng, replications, configuration)
        key = jax.random.key(int(rng.integers(2**31)))
        found = calibration_draws(
            configuration,
            jax.random.split(key, replications),
            [calibration_problem(configuration, labels) for labels in joint.labels],
            warmup=warmup,
            draws=draws,
            thinning=thinning,
        )
    chains = quantities(found, joint.labels, configuration.likelihood)
    truth = quantities(
        truths(joint, configuration.coupling), joint.labels, configuration.likelihood
    )
    ranks, correlation = {}, {}
    for name, values in chains.items():
        if not np.all(np.isfinite(values)):
            raise FloatingPointError(f"{configuration.name}: {name} is not finite")
        ranks[name] = ranks_of(rng, truth[name][:, 0], values).tolist()
        within = values - values.mean(1, keepdims=True)
        correlation[name] = float(np.sum(within[:, 1:] * within[:, :-1]) / np.sum(within**2))
    return {"ranks": ranks, "correlation": correlation}


def summarize(found: Mapping[Configuration, dict[str, Any]], n_values: int) -> list[dict[str, Any]]:
    """One line for each configuration: p-values, the least, and whether it passes.

    A configuration passes if none of its p-values is below :data:`FALSE_ALARM` divided by the
    number of all p-values (Bonferroni).
    """
    lines = []
    total = sum(len(each["ranks"]) for each in found.values())
    for configuration, each in found.items():
        p = {name: p_value(np.asarray(r), n_values) for name, r in each["ranks"].items()}
        least = min(p, key=lambda name: p[name])
        correlated = max(each["correlation"], key=lambda name: each["correlation"][name])
        lines.append(
            {
                **configuration._asdict(),
                "replications": len(next(iter(each["ranks"].values()))),
                "p_values": p,
                "least": least,
                "passes": p[least] >= FALSE_ALARM / total,
                "correlated": correlated,
                "largest_correlation": each["correlation"][correlated],
            }
        )
    return lines


def markdown(lines: list[dict[str, Any]]) -> str:
    """Return the summary as a table."""
    total = sum(len(line["p_values"]) for line in lines)
    rows = [
        "| likelihood | coupling | theta | factor | sampler | least p-value, of "
        "| times all, at most 1 | verdict | correlation of draws |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        p = line["p_values"][line["least"]]
        cells = [
            *(line[name] for name in Configuration._fields),
            f"{p:.2g}, {line['least']}",
            f"{min(1.0, p * total):.2g}",
            "passes" if line["passes"] else "**fails**",
            f"{line['largest_correlation']:.2f}, {line['correlated']}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def draw_figure(found: Mapping[Configuration, dict[str, Any]], n_values: int, path: Path) -> None:
    """Draw the distribution function of the ranks less the uniform one, with bands."""
    columns = min(4, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(2.7 * columns, 0.7 + 1.75 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    share = np.arange(1, n_values) / n_values
    names = list(dict.fromkeys(name for each in found.values() for name in each["ranks"]))
    handles: dict[str, Any] = {}
    for axes, (configuration, each) in zip(panels, found.items(), strict=False):
        size = len(next(iter(each["ranks"].values())))
        low, high = (bound / size - share for bound in simultaneous_band(size, n_values, BAND))
        axes.fill_between(share, low, high, color="0.88", linewidth=0)
        for name, ranks in each["ranks"].items():
            style = class_style(names.index(name))
            curve = counts_below(np.asarray(ranks), n_values) / size - share
            (handles[name],) = axes.plot(
                share, curve, color=style.colour, linestyle=style.line, linewidth=0.9
            )
        likelihood, coupling, theta, factor, sampler = configuration
        named = "" if sampler == "hmc" else f", {sampler}"
        axes.set_title(f"{likelihood}, {coupling}\ntheta {theta}, {factor}{named}", fontsize=7)
        axes.tick_params(labelsize=6)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    figure.legend(
        handles.values(),
        handles,
        loc="outside lower center",
        ncols=min(len(names), 2 * columns),
        fontsize=7,
    )
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where a configuration fails."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.sbc", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two configurations, few replications")
    parser.add_argument("--jobs", type=int, default=1, help="processes; default: %(default)s")
    parser.add_argument("--out", type=Path, help="default: sbc-output, or sbc-output-quick")
    parser.add_argument("--only", default="", help="configurations whose names have this in them")
    given = parser.parse_args(arguments)
    out = given.out or Path("sbc-output-quick" if given.quick else "sbc-output")
    settings = QUICK if given.quick else FULL
    chosen = [each for each in CONFIGURATIONS if given.only in each.name]
    if given.quick and not given.only:
        chosen = [each for each in chosen if each.name.startswith(QUICK_NAMES)]
    if not chosen:
        parser.error(f"--only: no configuration has {given.only!r} in its name")
    cells = {
        each.name: {"configuration": list(each), "settings": list(settings)} for each in chosen
    }
    stored = run_cells(draw_ranks, cells, out, jobs=given.jobs)
    found = {each: stored[each.name] for each in chosen}
    lines = summarize(found, settings.draws + 1)
    write_text(out / "sbc.json", json.dumps(lines, indent=1) + "\n")
    write_text(out / "sbc.md", markdown(lines))
    draw_figure(found, settings.draws + 1, out / "sbc.png")
    print(markdown(lines), end="")
    return 0 if all(line["passes"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
