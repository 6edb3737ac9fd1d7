"""How fast the samplers mix: ``python benchmarks/mixing.py [--data wine,...]``.

For each data set and likelihood, in one run and one precision (float64), four vectorised chains of
(i) the paper's sweep, (ii) the default sampler, (iii) NumPyro's NUTS on the same whitened density
with the weights integrated out. Reported: the smallest bulk effective sample size over log sigma2,
log tau and the class functions at 100 held-out rows, per second of sampling; the largest R-hat of
the same quantities; compile time apart. The paper's sweep gets ten times the sweeps.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import warnings
from pathlib import Path

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import NUTS
from shared import seconds_of, training_and_held_out

from bmsvm import PAPER, BMSVMGibbs, Posterior, prepare
from bmsvm.models import hierarchical_model
from bmsvm.models.conditionals import intercept_collapsed, project, weights_full
from bmsvm.models.couplings import class_vector, to_columns

LENGTHSCALES = {"wine": 3.5, "glass": 10.0, "vehicle": 6.0, "waveform": 3.5, "eleven": 3.5}
HELD_OUT = 100
TARGETS = {"hinge": (10, 3, 100), "normalized": (5, 2, 100)}


def run_sampler(kernel, problem, num_warmup: int, num_samples: int, thinning: int = 1):
    """Drive any NumPyro kernel with four vectorised chains, compiled ahead of time.

    ``numpyro.infer.MCMC`` compiles anew in each run, so its times could not be told apart.
    """
    args: tuple = (problem,)

    def sweep(state, _):
        state = jax.lax.fori_loop(0, thinning, lambda _, s: kernel.sample(s, args, {}), state)
        return state, None

    def draw(state, _):
        state, _ = sweep(state, None)
        sites = jax.vmap(kernel.postprocess_fn(args, {}))(state.z)
        kept = {name: sites[name] for name in ("scores", "noise_variance", "precision")}
        return state, (kept, state.num_steps, state.accept_prob)

    def warm_up_phase(state):
        return jax.lax.scan(sweep, state, length=num_warmup // thinning)[0]

    def sampling_phase(state):
        return jax.lax.scan(draw, state, length=num_samples // thinning)[1]

    state = kernel.init(jax.random.split(jax.random.key(0), 4), num_warmup, None, args, {})
    compile_warm_up, warm_up = seconds_of(lambda: jax.jit(warm_up_phase).lower(state).compile())
    compile_sample, sample = seconds_of(lambda: jax.jit(sampling_phase).lower(state).compile())
    warm_up_seconds, state = seconds_of(lambda: warm_up(state))
    seconds, (draws, steps, _) = seconds_of(lambda: sample(state))
    return draws, seconds, warm_up_seconds, compile_warm_up + compile_sample, float(steps.mean())


@jax.jit
def with_weights(key, draws, problem):
    """Draw intercept and weights given the scores of each draw, whichever sampler made them."""

    def one(inputs):
        key, scores, noise_variance, precision = inputs
        key_intercept, key_weights = jax.random.split(key)
        seen = project(to_columns(scores, problem.labels, problem.coupling), problem)
        intercept = intercept_collapsed(seen, precision, noise_variance, problem)
        intercept = intercept.sample(key_intercept)
        weights = weights_full(seen, intercept, precision, noise_variance, problem)
        return class_vector(intercept, problem.coupling), weights.sample(key_weights)

    keys = jax.random.split(key, draws["precision"].size)
    sites = (draws["scores"], draws["noise_variance"], draws["precision"])
    intercept, weights = jax.lax.map(one, (keys, *sites))
    return {**draws, "intercept": intercept, "weights": weights}


def diagnose(draws, problem, X, held_out, theta):
    """Smallest bulk ESS and largest R-hat over log sigma2, log tau and the functions."""
    # From (draw, chain, ...) to chains one after another.
    draws = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), draws)
    draws = with_weights(jax.random.key(9), draws, problem)

    def by_chain(x):
        return np.asarray(x).reshape(4, -1, *np.shape(x)[1:])

    samples = {name: by_chain(value) for name, value in draws.items()}
    posterior = Posterior(samples, problem, X, lengthscale=theta)
    parts = posterior.evaluate(held_out, probabilities=False)
    functions = np.concatenate([part.functions for part in parts])  # (m, c, s)
    values = {
        "log_noise_variance": np.log(samples["noise_variance"]),
        "log_precision": np.log(samples["precision"]),
        "functions": by_chain(np.moveaxis(functions, -1, 0)),
    }
    data = az.convert_to_dataset(values)
    ess = {name: float(az.ess(data)[name].min()) for name in values}
    rhat = {name: float(az.rhat(data)[name].max()) for name in values}
    return ess, rhat


def measure(name: str, likelihood: str, sweeps: int) -> list[dict]:
    X, y, held_out, _ = training_and_held_out(name, HELD_OUT)
    theta = LENGTHSCALES[name]
    problem = prepare(X, y, lengthscale=theta, likelihood=likelihood, hyperparameters=PAPER)
    samplers = {
        "paper": (BMSVMGibbs(sampler="paper"), 10),
        "default": (BMSVMGibbs(sampler="hmc"), 1),
        "nuts": (NUTS(hierarchical_model), 1),
    }
    records = []
    for sampler, (kernel, factor) in samplers.items():
        draws, seconds, warm_up, compiling, steps = run_sampler(
            kernel, problem, factor * sweeps, factor * sweeps, thinning=factor
        )
        ess, rhat = diagnose(draws, problem, X, held_out, theta)
        records.append(
            {
                "data": name,
                "rows": problem.n_rows,
                "classes": problem.n_classes,
                "likelihood": likelihood,
                "sampler": sampler,
                "sweeps": factor * sweeps,
                "steps_per_sweep": steps,
                "sampling_seconds": seconds,
                "warmup_seconds": warm_up,
                "compile_seconds": compiling,
                "min_ess": min(ess.values()),
                "ess": ess,
                "max_rhat": max(rhat.values()),
                "rhat": rhat,
                "ess_per_second": min(ess.values()) / seconds,
            }
        )
        print(row(records[-1]), flush=True)
    return records


COLUMNS = (
    f"{'data':9} {'likelihood':10} {'sampler':8} {'compile':>8} {'warm-up':>8} {'sampling':>8} "
    f"{'steps':>6} {'ESS':>7} {'R-hat':>6} {'ESS/s':>8}"
)


def row(r: dict) -> str:
    return (
        f"{r['data']:9} {r['likelihood']:10} {r['sampler']:8} {r['compile_seconds']:7.1f}s "
        f"{r['warmup_seconds']:7.1f}s {r['sampling_seconds']:7.1f}s {r['steps_per_sweep']:6.1f} "
        f"{r['min_ess']:7.0f} {r['max_rhat']:6.3f} {r['ess_per_second']:8.2f}"
    )


def ratios(records: list[dict]) -> dict:
    """Default against its rivals, for each likelihood: geometric mean and worst data set."""
    result: dict = {}
    for likelihood in dict.fromkeys(r["likelihood"] for r in records):
        rate = {
            (r["data"], r["sampler"]): r["ess_per_second"]
            for r in records
            if r["likelihood"] == likelihood
        }
        names = list(dict.fromkeys(data for data, _ in rate))
        over = {
            rival: {d: rate[d, "default"] / rate[d, rival] for d in names}
            for rival in ("nuts", "paper")
        }
        result[likelihood] = {
            rival: {
                "each": each,
                "geometric_mean": math.exp(np.mean(np.log(list(each.values())))),
                "worst": min(each.values()),
            }
            for rival, each in over.items()
        }
        result[likelihood]["max_rhat"] = max(
            r["max_rhat"]
            for r in records
            if r["likelihood"] == likelihood and r["sampler"] == "default"
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(LENGTHSCALES))
    parser.add_argument("--likelihoods", default="hinge,normalized")
    parser.add_argument("--sweeps", type=int, default=1000, help="warm-up and sampling, each")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/mixing.json"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    numpyro.enable_x64()

    print(f"4 chains, {arguments.sweeps} + {arguments.sweeps} sweeps, float64.\n{COLUMNS}")
    records = []
    for name in arguments.data.split(","):
        for likelihood in arguments.likelihoods.split(","):
            records += measure(name, likelihood, arguments.sweeps)
            jax.clear_caches()
    summary = ratios(records)
    print("\nSmallest ESS per second, default over rival (target):")
    for likelihood, of in summary.items():
        mean, worst, paper = TARGETS[likelihood]
        print(
            f"  {likelihood:10} / NUTS: geometric mean {of['nuts']['geometric_mean']:.1f} "
            f"(>= {mean}), worst {of['nuts']['worst']:.1f} (>= {worst}); / paper: geometric mean "
            f"{of['paper']['geometric_mean']:.0f} (>= {paper}), worst {of['paper']['worst']:.0f}; "
            f"max R-hat {of['max_rhat']:.3f} (< 1.01)"
        )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    versions = {"jax": jax.__version__, "numpyro": numpyro.__version__}
    report = {
        "versions": {**versions, "python": platform.python_version()},
        "records": records,
        "ratios": summary,
    }
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nWritten to {arguments.output}")


if __name__ == "__main__":
    main()
