"""``bmsvm fit``: fit a model to a CSV file and save it."""

from __future__ import annotations

import argparse
import re
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bmsvm._defaults import draws_independently, settings_of
from bmsvm._tables import TableError
from bmsvm.classifier import BMSVMClassifier
from bmsvm.commands import files
from bmsvm.compilation import enable_compilation_cache
from bmsvm.convergence import warn_of_checks
from bmsvm.kernels import Fourier, Nystrom
from bmsvm.persistence import save
from bmsvm.summary import summarise_model


def run(options: argparse.Namespace) -> None:
    """Fit and save; raise ``KeyboardInterrupt`` if there are fewer draws than asked for."""
    say, began = _silent if options.quiet else files.say, time.perf_counter()
    enable_compilation_cache()
    files.check_output(options.output, options.data)
    table = files.data_of(options.data)
    labels = _labels(table.cells(options.target, option="--target"))
    _check_classes(options.target, labels)
    for column in options.drop:
        table.cells(column, option="--drop", filled=False)
    features = [name for name in table.columns if name not in {options.target, *options.drop}]
    if not features:
        raise TableError(f"{table.path} has no features beside --target and --drop")
    rows, model = table.numbers(features, droppable=True), _classifier(options)
    say(
        f"read {options.data}: {len(rows)} rows, {len(features)} features, "
        f"{len(np.unique(labels))} classes in {options.target!r}"
    )
    settings = settings_of(model, len(rows), len(np.unique(labels)))
    say(_plan(options, independent=draws_independently(settings)))
    with warnings.catch_warnings():  # these two are given below, in terms of the options
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message="interrupted: |max_time is over: ")
        model.fit(rows, labels, checkpoint=options.checkpoint, max_time=options.max_time)
    model.feature_names_in_ = np.array(features, object)
    save(model, options.output)
    summary = summarise_model(model)
    if not summary.converged:
        warnings.warn(f"{summary.convergence}; increase --warmup or --draws", stacklevel=1)
    warn_of_checks(summary.chain_checks, ConvergenceWarning, stacklevel=2)
    if summary.converged:
        say(summary.verdict)
    seconds = time.perf_counter() - began
    what = "Draws" if summary.independent else "Chains"
    say(f"saved {options.output} after {seconds:.1f} s; {what.lower()}: {summary.facts[what]}")
    if model.run_.ended == "time":
        made = f"{model.run_.num_samples} of at most {options.draws} draws"
        say(f"--max-time is over: {made} were made")
    elif model.run_.interrupted:
        raise KeyboardInterrupt(f"saved {model.run_.num_samples} of {options.draws} draws")


def _silent(message: str) -> None:
    pass


def _plan(options: argparse.Namespace, *, independent: bool) -> str:
    """Return what will be drawn, in words."""
    chains, draws = options.chains, options.draws
    if independent:
        return f"fitting at most {chains} × {draws} independent draws ..."
    return f"fitting {chains} chains of at most {draws} draws each, after warm-up ..."


def _labels(cells: list[str]) -> np.ndarray:
    """Return labels as integers if all are written as such, so that 10 follows 9, else as text."""
    whole = all(re.fullmatch(r"0|-?[1-9]\d{0,17}", cell) for cell in cells)
    return np.array(cells, int if whole else str)


def _check_classes(target: str, labels: np.ndarray) -> None:
    """Raise ``ValueError`` if labels (n,) are all the same, or mostly different."""
    count = len(np.unique(labels))
    if count < 2:
        raise ValueError(
            f"--target must be a column of at least 2 classes; {target!r} has one, "
            f"{labels[0].item()!r:.40}"
        )
    if count > max(len(labels) / 2, 3):
        raise ValueError(
            f"--target must be a column of classes; {target!r} has {count} different values in "
            f"{len(labels)} rows"
        )


def _classifier(options: argparse.Namespace) -> BMSVMClassifier:
    return BMSVMClassifier(
        likelihood=options.likelihood,
        coupling=options.coupling,
        kernel=options.kernel,
        lengthscale=options.lengthscale,
        approximation=_approximation(options),
        sampler=options.sampler,
        num_chains=options.chains,
        num_warmup=options.warmup,
        num_samples=options.draws,
        class_weight=options.class_weight,
        standardize=None if options.standardize == "none" else options.standardize,
        random_state=options.seed,
    )


def _approximation(options: argparse.Namespace) -> Any:
    if options.rank is None:
        return options.approximation
    kinds = {"nystrom": Nystrom, "fourier": Fourier}
    if options.approximation not in kinds:
        raise ValueError("--rank needs --approximation nystrom or fourier")
    return kinds[options.approximation](rank=options.rank)
