"""Effective draws a second of the default sampler and of general ones, on the same posteriors.

    make bench                                  # all cells that are missing, then the table
    python benchmarks/samplers.py --quick       # one small posterior, under a minute
    python benchmarks/samplers.py --data wine --samplers default,nuts-64
    python benchmarks/samplers.py --table       # the table of what is there

A cell is one sampler on one posterior, in a process of its own that has one thread. Eight
vectorised chains make draws until the smallest bulk effective sample size of what is watched
(``posteriors.watch``) reaches ``--ess``, or until ``--limit`` CPU seconds of sampling are over.
Ratios are of CPU seconds of sampling, so that other work on the machine changes them little;
compilation and warm-up are apart. A result counts if rank-normalised R-hat of everything watched is
below 1.02, and if its means are within four standard errors of those of at least half of the other
results on that posterior.

The default sampler runs as the classifier runs it: ``run_chains``, its length of warm-up, rows
filled up to a multiple of 32, weights drawn in every sweep. The others see the whitened density
with the weights integrated out, without rows to spare.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import math
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from shared import kept

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "samplers.jsonl"
DATA = ("wine", "glass", "vehicle", "waveform", "ecoli")
SAMPLERS = (
    "default",
    "chees-32",
    "nuts-64",
    "nuts-32",
    "microcanonical-32",
    "chees-64",
    "microcanonical-64",
)
TARGETS = {
    "normalized, default model": ("normalized", "default", SAMPLERS),
    "normalized, paper's priors": ("normalized", "paper", SAMPLERS),
    "hinge, paper's priors": ("hinge", "paper", ("default", "nuts-64", "nuts-32")),
}
"""Likelihood, priors and samplers of each target."""

CHAINS = 8
CHUNK = 100
"""Draws between two looks at the effective sample size, at first; each look doubles them."""

WARMUP = {"nuts": 500, "chees": 600, "microcanonical": 1000}
LARGEST_R_HAT, LARGEST_Z = 1.02, 4.0


# One cell -----------------------------------------------------------------------------------------


class Clock(NamedTuple):
    """CPU and wall seconds."""

    cpu: float
    wall: float

    @classmethod
    def now(cls) -> Clock:
        return cls(time.process_time(), time.perf_counter())

    def since(self) -> Clock:
        return Clock(time.process_time() - self.cpu, time.perf_counter() - self.wall)

    def __add__(self, other: Any) -> Clock:
        return Clock(self.cpu + other.cpu, self.wall + other.wall)


def measure(spec: dict) -> dict:
    """Run one cell; ``spec`` has the keys of :func:`specification`."""
    return _measure_default(spec) if spec["sampler"] == "default" else _measure_general(spec)


def _measure_default(spec: dict) -> dict:
    """Run ``run_chains`` as the classifier does."""
    import jax
    from posteriors import coordinates_of, posterior

    from bmsvm import BMSVMClassifier, BMSVMGibbs, run_chains
    from bmsvm._defaults import warmup_of
    from bmsvm.classifier import ROW_MULTIPLE

    with jax.enable_x64(True):
        args = (spec["data"], spec["rows"], spec["model"], spec["likelihood"])
        problem, padded = posterior(*args), posterior(*args, spare_multiple=ROW_MULTIPLE)
        fixed = {"lengthscale": 1.0} if spec["priors"] == "paper" else {}
        num_warmup = warmup_of(BMSVMClassifier(**fixed), low_rank=False)
        sites = ("scores", "intercept", "noise_variance", "precision", "num_steps")

        def run(num_warmup: int, num_samples: int):
            key = jax.random.key(spec["seed"])
            return run_chains(
                BMSVMGibbs(),
                key,
                padded,
                num_warmup=num_warmup,
                num_samples=num_samples,
                num_chains=CHAINS,
                collect=sites,
            )

        began = Clock.now()
        run(1, 1)
        compiling, began = began.since(), Clock.now()
        chains = run(num_warmup, 1)
        warm_up, sampling, draws = began.since(), Clock(0.0, 0.0), CHUNK
        while True:
            began = Clock.now()
            chains = chains.more(draws)
            sampling += began.since()
            found = {name: np.asarray(value)[:, 1:] for name, value in chains.samples.items()}
            result = summarise(coordinates_of(found, problem), found["num_steps"], problem)
            draws = found["num_steps"].shape[1]
            if _ends(result, sampling, draws, spec):
                return _record(spec, result, compiling, warm_up, sampling, draws, num_warmup)


def _measure_general(spec: dict) -> dict:
    """Run a sampler of :mod:`general_samplers`."""
    import jax
    import jax.numpy as jnp
    from general_samplers import BUILDERS, by_chain, compiled
    from posteriors import log_density, posterior, starts

    name, bits = spec["sampler"].split("-")
    with jax.enable_x64(True):
        problem = posterior(spec["data"], spec["rows"], spec["model"], spec["likelihood"])
    with jax.enable_x64(bits == "64"):
        dtype = jnp.float64 if bits == "64" else jnp.float32

        def as_type(leaf):
            leaf = np.asarray(leaf)
            return jnp.asarray(leaf, dtype if leaf.dtype.kind == "f" else jnp.int32)

        own = jax.tree.map(as_type, problem)
        num_warmup = spec.get("num_warmup") or WARMUP[name]
        sampler = BUILDERS[name](lambda at: log_density(at, own), CHAINS, num_warmup)
        key_start, key = jax.random.split(jax.random.key(spec["seed"]))
        positions = starts(key_start, own, CHAINS)
        began = Clock.now()
        warm_up_program, chunk = compiled(sampler, key, positions, CHUNK)
        compiling, began = began.since(), Clock.now()
        state = jax.block_until_ready(warm_up_program(key, positions))
        warm_up, sampling, pieces, calls = began.since(), Clock(0.0, 0.0), [], 1
    while True:
        with jax.enable_x64(bits == "64"):
            for _ in range(calls):
                began = Clock.now()
                state, piece = chunk(state)
                pieces.append(jax.tree.map(np.asarray, piece))
                sampling += began.since()
                if sampling.cpu > spec["limit"]:
                    break
        together = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
        with jax.enable_x64(True):
            coordinates, gradients = by_chain(together)
            result = summarise(coordinates, np.asarray(gradients), problem)
        calls, draws = len(pieces), gradients.shape[1]
        if _ends(result, sampling, draws, spec):
            return _record(spec, result, compiling, warm_up, sampling, draws, num_warmup)


def summarise(coordinates, gradients: np.ndarray, problem) -> dict:
    """Return sizes, R-hat, means and errors of what is watched, and gradients a draw."""
    from posteriors import watch

    from bmsvm.convergence import diagnose

    watched = watch(coordinates, problem)
    found = diagnose(watched)  # without what never moves
    worst = min(found, key=lambda name: found[name].ess) if found else None
    finite = len(found) == len(watched) and all(np.isfinite(each).all() for each in found.values())
    return {
        "ess": found[worst].ess if finite else 0.0,
        "worst": worst,
        "r_hat": max(each.r_hat for each in found.values()) if finite else math.inf,
        "means": {name: float(np.mean(value)) for name, value in watched.items()},
        "errors": {
            name: error_of_mean(value) if finite else math.inf for name, value in watched.items()
        },
        "gradients": float(gradients.mean()),
        "lockstep": float(gradients.max(0).mean()),
    }


def error_of_mean(values: np.ndarray) -> float:
    """Monte Carlo standard error of the mean of draws (chain, draw).

    The bulk size is of ranks, and too large for the mean of a quantity with heavy tails.
    """
    from bmsvm._arviz import arviz

    data = arviz.convert_to_dataset({"x": values})
    return float(np.std(values) / np.sqrt(np.asarray(arviz.ess(data, method="mean")["x"])))


def _ends(result: dict, sampling: Clock, draws: int, spec: dict) -> bool:
    return result["ess"] >= spec["ess"] or sampling.cpu > spec["limit"] or draws >= spec["draws"]


def _record(
    spec: dict,
    result: dict,
    compiling: Clock,
    warm_up: Clock,
    sampling: Clock,
    draws: int,
    num_warmup: int,
) -> dict:
    cell = {name: spec[name] for name in ("data", "rows", "target", "sampler", "seed")}
    return {
        **cell,
        "draws": draws,
        "num_warmup": num_warmup,
        "compile_seconds": compiling.cpu,
        "warmup_seconds": warm_up.cpu,
        "seconds": sampling.cpu,
        "wall_seconds": sampling.wall,
        **result,
    }


# All cells ----------------------------------------------------------------------------------------


CELL = """
import json, os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
spec = json.loads(sys.argv[1])
if spec["sampler"] == "model":
    import jax
    from posteriors import default_model
    with jax.enable_x64(True):
        found = default_model(spec["data"], spec["rows"])
else:
    from samplers import measure
    found = measure(spec)
print(json.dumps(found))
"""
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


def in_a_process(spec: dict) -> dict | None:
    """Run a cell in a process of one thread; None, and its last words, if it fails."""
    path = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CELL, json.dumps(spec)],
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, path))},
    )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def specification(name: str, target: str, sampler: str, model: dict, options) -> dict:
    """Return all that a cell needs to know."""
    likelihood, priors, _ = TARGETS[target]
    return {
        "data": name,
        "rows": options.rows,
        "target": target,
        "likelihood": likelihood,
        "priors": priors,
        "model": model,
        "sampler": sampler,
        "seed": options.seed,
        "ess": options.ess,
        "limit": options.limit,
        "draws": options.draws,
    }


def model_of(name: str, priors: str, records: list[dict], options) -> dict:
    """theta and priors of a data set: those that were used before, or chosen now."""
    from posteriors import paper_model

    if priors == "paper":
        return paper_model(name)
    for record in records:
        if record["sampler"] == "model" and (record["data"], record["rows"]) == (
            name,
            options.rows,
        ):
            return record["model"]
    cell = {"data": name, "rows": options.rows, "sampler": "model"}
    model = in_a_process(cell)
    if model is None:
        raise SystemExit(f"no model could be chosen for {name}")
    _append({**cell, "model": model}, records, options.output)
    return model


def _append(record: dict, records: list[dict], output: Path) -> None:
    records.append(record)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a") as file:
        file.write(json.dumps(record) + "\n")


def _key(record: dict) -> tuple:
    return tuple(record.get(name) for name in ("data", "rows", "target", "sampler", "seed"))


def run(options) -> list[dict]:
    """Run the cells that are missing, and return the records of all."""
    records = kept(options.output)
    done = {_key(record) for record in records}
    for target, name in itertools.product(options.targets, options.data):
        _, priors, samplers = TARGETS[target]
        for sampler in samplers:
            wanted = sampler in options.samplers and available(sampler)
            cell = (name, options.rows, target, sampler, options.seed)
            if not wanted or cell in done:
                continue
            model = model_of(name, priors, records, options)
            record = in_a_process(specification(name, target, sampler, model, options))
            if record is None:
                print(f"{name}, {target}, {sampler}: failed", file=sys.stderr, flush=True)
                continue
            _append(record, records, options.output)
            print(line_of(record), file=sys.stderr, flush=True)
    return records


def available(sampler: str) -> bool:
    """Whether what a sampler needs is installed."""
    blackjax = sampler.startswith(("chees", "microcanonical"))
    return not blackjax or importlib.util.find_spec("blackjax") is not None


# Which results count, and the table ---------------------------------------------------------------


def largest_z(a: dict, b: dict) -> float:
    """Largest difference of the means of two results, in standard errors of the difference."""
    return max(
        abs(a["means"][name] - b["means"][name]) / math.hypot(a["errors"][name], b["errors"][name])
        for name in a["means"]
    )


def verdicts(records: list[dict]) -> dict[str, str]:
    """``"ok"``, or why a result does not count, of the samplers on one posterior."""
    converged = [r for r in records if r["r_hat"] < LARGEST_R_HAT]
    found = {}
    for record in records:
        if record["r_hat"] >= LARGEST_R_HAT:
            found[record["sampler"]] = f"R-hat {record['r_hat']:.3f}"
            continue
        distances = [largest_z(record, other) for other in converged if other is not record]
        middle = float(np.median(distances)) if distances else 0.0
        found[record["sampler"]] = f"z {middle:.1f}" if middle > LARGEST_Z else "ok"
    return found


def line_of(record: dict) -> str:
    """One result in words."""
    r = record
    return (
        f"{r['data']}, {r['target']}, {r['sampler']}: ESS {r['ess']:.0f} ({r['worst']}) in "
        f"{r['draws']} x {CHAINS} draws and {r['seconds']:.1f} CPU s ({r['wall_seconds']:.1f} s); "
        f"warm-up {r['warmup_seconds']:.1f}, compiling {r['compile_seconds']:.1f}; R-hat "
        f"{r['r_hat']:.3f}; gradients a draw {r['gradients']:.1f}, {r['lockstep']:.1f} in lockstep"
    )


def details(records: list[dict], target: str) -> str:
    """One line for each result of a target."""
    lines = [
        "| data | sampler | ESS / s | gradients / ESS | gradients / draw | lockstep | "
        "us / gradient | warm-up | compile | R-hat | |",
        "|---" * 11 + "|",
    ]
    for name, here in _by_data(records, target).items():
        verdict = verdicts(list(here.values()))
        for sampler, r in here.items():
            size = max(r["ess"], 1e-9)
            per_gradient = r["seconds"] / (r["draws"] * CHAINS * r["lockstep"])
            lines.append(
                f"| {name} | {sampler} | {r['ess'] / r['seconds']:.1f} "
                f"| {r['gradients'] * r['draws'] * CHAINS / size:.0f} | {r['gradients']:.1f} "
                f"| {r['lockstep']:.1f} | {1e6 * per_gradient:.0f} | {r['warmup_seconds']:.1f} s "
                f"| {r['compile_seconds']:.1f} s | {r['r_hat']:.3f} | {verdict[sampler]} |"
            )
    return "\n".join(lines)


def ratios(records: list[dict], target: str) -> str:
    """Effective draws a second, default over rival, of each data set and their geometric mean."""
    by_data = _by_data(records, target)
    rivals = [s for s in TARGETS[target][2] if s != "default"]
    rivals = [s for s in rivals if any(s in here for here in by_data.values())]
    lines = [
        "| data | " + " | ".join(rivals) + " | best that counts |",
        "|---" * (len(rivals) + 2) + "|",
    ]
    columns: dict[str, list[float]] = {rival: [] for rival in (*rivals, "best")}
    for name, here in by_data.items():
        verdict = verdicts(list(here.values()))
        cells, counted = [], []
        for rival in rivals:
            if rival not in here or "default" not in here:
                cells.append("–")
                continue
            own, other = (r["ess"] / r["seconds"] for r in (here["default"], here[rival]))
            good = verdict[rival] == "ok" and verdict["default"] == "ok"
            if good:
                columns[rival].append(own / other)
                counted.append(own / other)
            why = verdict[rival] if verdict[rival] != "ok" else f"default {verdict['default']}"
            cells.append(f"{own / other:.2f}" if good else f"({why})")
        columns["best"] += [min(counted)] if counted else []
        cells.append(f"{min(counted):.2f}" if counted else "–")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    means = [
        f"{math.exp(np.mean(np.log(values))):.2f} ({len(values)})" if values else "–"
        for values in columns.values()
    ]
    lines.append("| geometric mean (data sets) | " + " | ".join(means) + " |")
    return "\n".join(lines)


def _by_data(records: list[dict], target: str) -> dict[str, dict[str, dict]]:
    found: dict[str, dict[str, dict]] = {}
    for record in records:
        if record.get("target") == target:
            found.setdefault(record["data"], {})[record["sampler"]] = record
    return found


def table(records: list[dict]) -> str:
    """Return all tables."""
    parts = []
    for target in TARGETS:
        if _by_data(records, target):
            parts.append(f"**{target}**: effective draws a second, default over rival")
            parts += [ratios(records, target), details(records, target)]
    return "\n\n".join(parts)


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help=f"of {','.join(DATA)}")
    parser.add_argument("--samplers", help=f"of {','.join(SAMPLERS)}")
    parser.add_argument("--targets", help=f"of {'; '.join(TARGETS)}, separated by semicolons")
    parser.add_argument("--rows", type=int, help="first rows only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ess", type=float, help="effective sample size at which a cell ends")
    parser.add_argument("--limit", type=float, help="CPU seconds of sampling of a cell")
    parser.add_argument("--draws", type=int, default=25_600, help="most draws of a chain")
    parser.add_argument("--quick", action="store_true", help="60 rows, three samplers")
    parser.add_argument("--table", action="store_true", help="print the table, run nothing")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    quick = options.quick
    options.data = (options.data or ("wine" if quick else ",".join(DATA))).split(",")
    chosen = "default,nuts-64,chees-32" if quick else ",".join(SAMPLERS)
    options.samplers = (options.samplers or chosen).split(",")
    targets = "normalized, paper's priors" if quick else ";".join(TARGETS)
    options.targets = [each.strip() for each in (options.targets or targets).split(";")]
    options.rows = options.rows or (60 if quick else None)
    options.ess = options.ess or (800 if quick else 1500)
    options.limit = options.limit or (5 if quick else 60)
    options.output = options.output or (RESULTS.with_stem("samplers-quick") if quick else RESULTS)
    for name, given, known in (
        ("data", options.data, DATA),
        ("samplers", options.samplers, SAMPLERS),
        ("targets", options.targets, TARGETS),
    ):
        if not set(given) <= set(known):
            parser.error(f"--{name} must be of {', '.join(known)}; got {', '.join(given)}")
    return options


def main() -> None:
    options = options_of()
    warnings.simplefilter("ignore")
    if options.quick and not options.table:
        options.output.unlink(missing_ok=True)
    records = kept(options.output) if options.table else run(options)
    print(table(records))


if __name__ == "__main__":
    main()
