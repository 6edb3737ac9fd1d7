"""How good the probabilities are: ``python benchmarks/quality.py [--data wine,...] [--splits 10]``.

Ten random stratified splits, the same for all classifiers: log-loss, Brier score, error, expected
calibration error (15 bins of the confidence), and how well the classifier's uncertainty tells rows
of a class never seen, and noise far away, from rows like those it was trained on (area under the
ROC curve, for rivals the better of entropy and least confidence). The rivals are in ``rivals.py``
and standardise their rows; ``BMSVMClassifier`` is given raw rows.

Each finished cell is a line of the output file and is not computed again. Several processes may add
to one file. ``--kinds`` chooses classifiers; the table compares the first with all others.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from data import TRAINING_ROWS, stratified_split
from rivals import BUILDERS, rival
from scipy.stats import rankdata
from shared import kept, seconds_of
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import StandardScaler

from bmsvm import PAPER, BMSVMClassifier
from bmsvm.plots.reliability import reliability_table

RESULTS = Path(__file__).with_name("results") / "quality.jsonl"
FAR_ROWS = 300
SCORES = ("log_loss", "brier", "error", "ece", "unseen", "far")
HIGHER_IS_BETTER = ("unseen", "far")
KINDS = ("bmsvm", *BUILDERS)
SETTINGS: dict[str, dict] = {
    "bmsvm": {},
    # Not the default: asked for by --kinds.
    "bmsvm chains": {"likelihood": "normalized"},
    "bmsvm gaussian": {"kernel": "gaussian"},
    "bmsvm not pooled": {"predictive": "calibrated"},
    "bmsvm robust scaling": {"standardize": "robust"},
    "bmsvm standard scaling": {"standardize": "standard"},
    "bmsvm squares-cv": {"lengthscale": "squares-cv"},
    "bmsvm sample": {"lengthscale": "sample"},
    "bmsvm as averaged": {"lengthscale": "squares-cv", "predictive": "posterior"},
    "bmsvm paper's priors": {"hyperparameters": PAPER, "predictive": "posterior"},
}


def classifier(kind: str, seed: int):
    """Return an unfitted classifier of raw rows."""
    if kind in SETTINGS:
        return BMSVMClassifier(**SETTINGS[kind], random_state=seed)
    return rival(kind, seed)


# One cell: a data set, a split, a classifier


def proper_scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Scores of probabilities (m, c) of classes (m,); for the log-loss clipped at 1e-12."""
    clipped = np.clip(probabilities, 1e-12, None)
    clipped /= clipped.sum(1, keepdims=True)
    one_hot = np.eye(probabilities.shape[1])[labels]
    right = probabilities.argmax(1) == labels
    return {
        "log_loss": float(log_loss(labels, clipped, labels=np.arange(clipped.shape[1]))),
        "brier": float(np.mean(((probabilities - one_hot) ** 2).sum(1))),
        "error": float(np.mean(~right)),
        "ece": reliability_table(probabilities.max(1), right, bins=15).calibration_error,
    }


def uncertainties(model, X: np.ndarray) -> list[np.ndarray]:
    """What the classifier says of its own ignorance (m,); the best of the list counts."""
    if isinstance(model, BMSVMClassifier):
        return [np.asarray(model.predict_uncertainty(X).epistemic)]
    p = np.asarray(model.predict_proba(X))
    return [-p.max(1), -(p * np.log(np.clip(p, 1e-12, None))).sum(1)]


def detection(model, inside: np.ndarray, outside: np.ndarray) -> float:
    """Area under the ROC curve of the uncertainty, of rows inside against rows outside."""
    rows = np.concatenate([inside, outside])
    truth = np.repeat([0, 1], [len(inside), len(outside)])
    return float(max(roc_auc_score(truth, score) for score in uncertainties(model, rows)))


def fit_seconds(model, X: np.ndarray, y: np.ndarray) -> float:
    """Seconds to fit, with the time of results that an earlier fit left to this one."""
    seconds = seconds_of(lambda: model.fit(X, y))[0]
    last_step = model[-1] if hasattr(model, "steps") else model
    return seconds + getattr(last_step, "saved_seconds_", 0.0)


def measure(name: str, split: int, kind: str, with_detection: bool = True) -> dict:
    """Record of one cell."""
    train, test, label, truth = stratified_split(name, split)
    model = classifier(kind, split)
    seconds = fit_seconds(model, train, label)
    record = {"data": name, "split": split, "kind": kind, "fit_seconds": round(seconds, 3)}
    record |= proper_scores(np.asarray(model.predict_proba(test)), truth)
    if not with_detection:
        return record
    noise = 5 * np.random.default_rng(split).normal(size=(FAR_ROWS, train.shape[1]))
    far = StandardScaler().fit(train).inverse_transform(noise)
    record["far"] = detection(model, test, far)
    classes = label.max() + 1
    if classes > 2:  # a class is left out of the training rows
        seen = label != split % classes
        _, rest = np.unique(label[seen], return_inverse=True)
        model = classifier(kind, split).fit(train[seen], rest)
        outside = truth == split % classes
        record["unseen"] = detection(model, test[~outside], test[outside])
    return record


# The table


def by_split(records: list[dict], name: str, kind: str, score: str) -> dict[int, float]:
    """Scores of a classifier on a data set, by split."""
    return {
        r["split"]: r[score]
        for r in records
        if (r["data"], r["kind"]) == (name, kind) and score in r
    }


def excess(first: dict[int, float], other: dict[int, float], sign: int) -> np.ndarray:
    """How much worse the other is than the first, on the splits that both have."""
    return np.array([sign * (other[s] - first[s]) for s in sorted(first.keys() & other.keys())])


def verdict(gap: np.ndarray) -> tuple[str, str]:
    """Whether the first is best, within a paired standard error or behind; and the numbers."""
    mean = -gap.mean()
    error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan
    word = "best" if mean <= 0 else "within" if mean <= error else "behind"
    return word, f"{word} ({mean:+.4f} ± {error:.4f})"


def score_table(records: list[dict], kinds: list[str], score: str) -> list[str]:
    """Means over splits for each data set, average ranks, and a line that sums up.

    Ranks and differences are paired: of means over the splits that a classifier shares with the
    first. A mean over fewer splits than the first has shows their number.
    """
    sign = -1 if score in HIGHER_IS_BETTER else 1
    lines = ["", f"### {score}", "", "| data | splits | " + " | ".join(kinds) + " | |"]
    lines.append("|---" * (len(kinds) + 3) + "|")
    words, ranks = [], []
    for name in TRAINING_ROWS:
        cells = {kind: by_split(records, name, kind, score) for kind in kinds}
        first = cells[kinds[0]]
        gaps = {kind: excess(first, cells[kind], sign) for kind in kinds}
        if any(len(gap) == 0 for gap in gaps.values()):
            continue
        shown = " | ".join(
            f"{np.mean([*cells[kind].values()]):.4f}"
            + (f" ({len(gap)})" if len(gap) < len(first) else "")
            for kind, gap in gaps.items()
        )
        ranks.append(rankdata([gap.mean().round(12) for gap in gaps.values()]))
        best = min(kinds[1:] or kinds, key=lambda kind: gaps[kind].mean())
        word, difference = verdict(gaps[best])
        words.append(word)
        lines.append(f"| {name} | {len(first)} | {shown} | {difference}, {best} |")
    if not ranks:
        return []
    average = np.mean(ranks, axis=0)
    lines.append("| average rank | | " + " | ".join(f"{rank:.2f}" for rank in average) + " | |")
    return [*lines, "", *summary(kinds, average, words)]


def summary(kinds: list[str], average: np.ndarray, words: list[str]) -> list[str]:
    """Sentences below a table: sets on which the first is not behind, and the gap of ranks."""
    good = sum(word != "behind" for word in words)
    lines = [
        f"{kinds[0]} is best on {words.count('best')} of {len(words)} data sets, and best or "
        f"within a paired standard error of the best other on {good}."
    ]
    if len(kinds) > 1:
        second = 1 + int(np.argmin(average[1:]))
        lines.append(
            f"Its average rank is {average[0]:.2f}; the best other is {kinds[second]} with "
            f"{average[second]:.2f}, a gap of {average[second] - average[0]:+.2f}."
        )
    return lines


def time_table(records: list[dict], kinds: list[str]) -> list[str]:
    """Median seconds to fit, for each data set and classifier."""
    lines = ["", "### seconds to fit, median", "", "| data | " + " | ".join(kinds) + " |"]
    lines.append("|---" * (len(kinds) + 1) + "|")
    for name in TRAINING_ROWS:
        cells = [[*by_split(records, name, kind, "fit_seconds").values()] for kind in kinds]
        if all(cells):
            shown = " | ".join(f"{np.median(seconds):.1f}" for seconds in cells)
            lines.append(f"| {name} | {shown} |")
    return lines


def table(records: list[dict], kinds: list[str]) -> str:
    """All tables in Markdown."""
    lines = [line for score in SCORES for line in score_table(records, kinds, score)]
    return "\n".join([*lines, *time_table(records, kinds)])


# The run


def is_done(output: Path, name: str, split: int, kind: str) -> bool:
    """Whether this run or another has finished a cell."""
    return any((r["data"], r["split"], r["kind"]) == (name, split, kind) for r in kept(output))


def run(names: list[str], splits: int, kinds: list[str], output: Path, measured: Callable) -> None:
    """Compute the cells that the file does not have, all data sets of a split before the next."""
    for split in range(splits):
        for name in names:
            for kind in kinds:
                if is_done(output, name, split, kind):
                    continue
                record = measured(name, split, kind)
                with output.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                shown = " ".join(f"{s} {record[s]:.4f}" for s in SCORES if s in record)
                seconds = record["fit_seconds"]
                print(f"{name:11} {split:2} {kind:20} {seconds:6.1f}s {shown}", flush=True)


def parsed() -> argparse.Namespace:
    """Command line; names that are not known end it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(TRAINING_ROWS), help="data sets")
    parser.add_argument("--splits", type=int, default=10, help="number of splits")
    parser.add_argument("--kinds", default=",".join(KINDS), help="classifiers")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file of finished cells")
    parser.add_argument(
        "--no-detection", action="store_true", help="skip unseen and far: use another --output"
    )
    parser.add_argument(
        "--rows", type=int, help="training rows of every data set: use another --output"
    )
    arguments = parser.parse_args()
    arguments.data, arguments.kinds = arguments.data.split(","), arguments.kinds.split(",")
    for given, known in ((arguments.data, TRAINING_ROWS), (arguments.kinds, {*KINDS, *SETTINGS})):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return arguments


def main() -> None:
    arguments = parsed()
    warnings.simplefilter("ignore")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    if arguments.rows:
        TRAINING_ROWS.update(dict.fromkeys(arguments.data, arguments.rows))

    def measured(name: str, split: int, kind: str) -> dict:
        return measure(name, split, kind, with_detection=not arguments.no_detection)

    run(arguments.data, arguments.splits, arguments.kinds, arguments.output, measured)
    print(table(kept(arguments.output), arguments.kinds))


if __name__ == "__main__":
    main()
