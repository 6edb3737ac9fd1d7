"""Whether the uncertainty is honest: ``python benchmarks/honesty.py [--replicates 20]``.

Labels are simulated, so that the class probabilities p(y | x) of every row are known, and what a
fitted model says of them can be compared with the truth. A cell is a problem, a number of training
rows, a replicate and a setting of the classifier. One fit gives all numbers of a cell:

- intervals: how often 90% intervals hold p(y | x), how wide they are, KL(truth || predicted), and
  the entropies;
- sets: how often prediction sets hold the label, and their size; the error of the rows that
  ``predict_reject(error=0.05)`` accepts;
- far: uncertainty along rays that leave the data (problem blobs);
- rows: the same as intervals for more and more training rows (problem gp).

``--part`` chooses the cells to compute and the tables to print. Each finished cell is a line of the
output file and is not computed again. Several processes may add to one file. Replicates share
nothing; settings have the same data.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.special
from shared import kept, seconds_of
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler

from bmsvm import BMSVMClassifier, datasets

RESULTS = Path(__file__).with_name("results") / "honesty.jsonl"
SETTINGS: dict[str, dict] = {
    "default": {},
    "squared": {"likelihood": "squared"},
    "sampled": {"lengthscale": "sample", "predictive": "posterior"},  # theta and tau, as they are
}
TEST_ROWS = 300
TRAINING_ROWS = {"blobs": 150, "gp": 150, "wine": 120, "glass": 150, "noise": 150, "flips": 150}
MORE_ROWS = (30, 150, 600, 2200)
EXACT_ROWS = 2000  # beyond, theta cannot be sampled on a Gram matrix of low rank, and takes hours
INTERVAL = 0.9
LEVELS = (0.8, 0.9, 0.95)
METHODS: dict[str, dict] = {
    "bayes": {"method": "bayes"},
    "conformal": {"method": "conformal"},
    "conformal by class": {"method": "conformal", "by_class": True},
}
REJECT_ERROR = 0.05
DISTANCES = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
RAYS = 8
PARTS = ("intervals", "sets", "far", "rows")


# Problems: rows and their true class probabilities


class Problem(NamedTuple):
    """Training rows (n, p), their labels (n,), new rows (m, p), and p(y | x) of these (m, c)."""

    rows: np.ndarray
    labels: np.ndarray
    new: np.ndarray
    truth: np.ndarray


def around_centres(rng: np.random.Generator, count: int, distance: float):
    """Rows of three normal classes in the plane, and their probabilities by Bayes' rule."""
    angles = 2 * np.pi * np.arange(3) / 3 + np.pi / 2
    centres = distance * np.column_stack([np.cos(angles), np.sin(angles)])
    X = centres[rng.integers(3, size=count)] + rng.normal(size=(count, 2))
    squares = ((X[:, None] - centres) ** 2).sum(axis=2)
    return X, scipy.special.softmax(-0.5 * squares, axis=1)


def blobs(rng: np.random.Generator, count: int):
    """Three classes that overlap."""
    return around_centres(rng, count, distance=1.2)


def flips(rng: np.random.Generator, count: int):
    """Three classes far apart; one label in five is drawn from all classes."""
    X, p = around_centres(rng, count, distance=3.0)
    return X, 0.8 * p + 0.2 / 3


def gp(rng: np.random.Generator, count: int):
    """Softmax of three Gaussian processes of variance 4 and lengthscale 1.5, three features."""
    X = rng.normal(size=(count, 3))
    gram = 4 * rbf_kernel(X, gamma=0.5 / 1.5**2) + 1e-8 * np.eye(count)
    f = np.linalg.cholesky(gram) @ rng.normal(size=(count, 3))
    return X, scipy.special.softmax(f, axis=1)


def noise(rng: np.random.Generator, count: int):
    """Labels that have nothing to do with the five features."""
    return rng.normal(size=(count, 5)), np.full((count, 3), 1 / 3)


def shuffled(rng: np.random.Generator, load: Callable):
    """Standardised rows and classes of a data set, in random order."""
    X, y = load(return_X_y=True)
    order = rng.permutation(len(X))
    return StandardScaler().fit_transform(X)[order], np.unique(y, return_inverse=True)[1][order]


def wine(rng: np.random.Generator, count: int):
    """Rows of wine, probabilities of a logistic regression fitted to its labels."""
    X, y = shuffled(rng, datasets.load_wine)
    return X, LogisticRegression(C=0.05).fit(X, y).predict_proba(X)


def glass(rng: np.random.Generator, count: int):
    """Rows of glass, probabilities of a logistic regression on 80 kernel functions."""
    X, y = shuffled(rng, datasets.load_glass)
    basis = rbf_kernel(X, X[:80], gamma=0.5 / 2**2)
    return X, LogisticRegression(max_iter=2000).fit(basis, y).predict_proba(basis)


SIMULATORS = {each.__name__: each for each in (blobs, gp, wine, glass, noise, flips)}


def drawn_labels(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """Draw a class of each row by its probabilities (n, c)."""
    return (np.cumsum(p, axis=1)[:, :-1] <= rng.uniform(size=(len(p), 1))).sum(axis=1)


def simulate(name: str, rows: int, replicate: int) -> Problem:
    """One replicate of a problem, drawn again until each class has a training row."""
    place = list(SIMULATORS).index(name)
    for attempt in itertools.count():
        rng = np.random.default_rng((place, rows, replicate, attempt))
        X, p = SIMULATORS[name](rng, rows + TEST_ROWS)
        labels = drawn_labels(rng, p[:rows])
        if len(np.unique(labels)) == p.shape[1]:
            return Problem(X[:rows], labels, X[rows:], p[rows:])
    raise AssertionError("not reached")


# Numbers of one fit


def interval_scores(model, problem: Problem) -> dict:
    """Coverage and width of intervals, KL(truth || predicted) and entropies: means over rows."""
    found, p = model.predict_uncertainty(problem.new, level=INTERVAL), problem.truth
    inside = (found.lower <= p) & (p <= found.upper)
    return {
        "coverage": float(inside.mean()),
        "width": float((found.upper - found.lower).mean()),
        "kl": float(scipy.special.rel_entr(p, found.probabilities).sum(axis=1).mean()),
        "aleatoric": float(found.aleatoric.mean()),
        "epistemic": float(found.epistemic.mean()),
        "truth": float(scipy.special.entr(p).sum(axis=1).mean()),
    }


def set_scores(model, problem: Problem) -> list[dict]:
    """Coverage and size of prediction sets, for each method and level.

    The labels of new rows are integrated out: a set holds the label of its row with probability
    ``sum_j p_j [j in set]``. That is what drawn labels have on average, with less noise.
    ``covered`` is the sum of ``p_j [j in set]`` over the rows, for each class j.
    """
    scores = []
    for name, how in METHODS.items():
        for level in LEVELS:
            member = model.prediction_sets(problem.new, level, **how)
            covered = (problem.truth * member).sum(axis=0)
            scores.append(
                {
                    "method": name,
                    "level": level,
                    "coverage": float(covered.sum() / len(member)),
                    "size": float(member.sum(axis=1).mean()),
                    "covered": covered.tolist(),
                }
            )
    return scores


def rejection_scores(model, problem: Problem) -> dict:
    """Share of rows that are accepted, and the probability that one of them is wrong, if any."""
    answers = model.predict_reject(problem.new, error=REJECT_ERROR)
    accepted = ~np.ma.getmaskarray(answers)
    wrong = 1 - problem.truth[accepted, np.asarray(answers.data)[accepted]]
    error = float(wrong.mean()) if accepted.any() else None
    return {"accepted": float(accepted.mean()), "error": error}


def far_scores(model) -> dict[str, list[float]]:
    """Uncertainty at each distance from the centre of blobs: means over rays."""
    angles = 2 * np.pi * (np.arange(RAYS) + 0.5) / RAYS
    rays = np.column_stack([np.cos(angles), np.sin(angles)])
    rows = (np.array(DISTANCES)[:, None, None] * rays).reshape(-1, 2)
    found = model.predict_uncertainty(rows, level=INTERVAL)
    each = {
        "epistemic": found.epistemic,
        "largest probability": found.probabilities.max(axis=1),
        "width": (found.upper - found.lower).mean(axis=1),
    }
    return {name: np.reshape(v, (-1, RAYS)).mean(axis=1).tolist() for name, v in each.items()}


class Cell(NamedTuple):
    """One fit."""

    problem: str
    rows: int
    replicate: int
    setting: str


def measure(cell: Cell) -> dict:
    """Record of a cell."""
    problem = simulate(cell.problem, cell.rows, cell.replicate)
    model = BMSVMClassifier(**SETTINGS[cell.setting], random_state=cell.replicate)
    seconds, _ = seconds_of(lambda: model.fit(problem.rows, problem.labels))
    record = {**cell._asdict(), "seconds": round(seconds, 1)}
    record |= interval_scores(model, problem)
    record["by_class"] = problem.truth.sum(axis=0).tolist()  # new rows of each class, expected
    record["sets"] = set_scores(model, problem)
    record["rejection"] = rejection_scores(model, problem)
    if cell.problem == "blobs":
        record["far"] = far_scores(model)
    return record


# Which cells


def fits_of(part: str, problems: list[str]) -> list[tuple[str, int]]:
    """Problems and numbers of training rows that a part needs."""
    if part == "far":
        return [("blobs", TRAINING_ROWS["blobs"])]
    if part == "rows":
        return [("gp", rows) for rows in MORE_ROWS]
    return [(name, TRAINING_ROWS[name]) for name in problems]


def cells(
    parts: list[str], problems: list[str], replicates: int, settings: list[str]
) -> Iterator[Cell]:
    """Return cells of the parts, all those of a replicate before the next."""
    fits = dict.fromkeys(fit for part in parts for fit in fits_of(part, problems))
    for replicate, (name, rows), setting in itertools.product(range(replicates), fits, settings):
        if setting != "sampled" or rows <= EXACT_ROWS:
            yield Cell(name, rows, replicate, setting)


def is_done(output: Path, cell: Cell) -> bool:
    """Whether this run or another has finished a cell."""
    return any(tuple(record[field] for field in Cell._fields) == cell for record in kept(output))


def run(wanted: Iterator[Cell], output: Path, measured: Callable[[Cell], dict] = measure) -> None:
    """Compute the cells that the file does not have."""
    for cell in wanted:
        if is_done(output, cell):
            continue
        record = measured(cell)
        with output.open("a") as file:
            file.write(json.dumps(record) + "\n")
        shown = " ".join(f"{name} {record[name]:.3f}" for name in ("coverage", "width", "kl"))
        print(f"{' '.join(map(str, cell)):32} {record['seconds']:6.1f}s {shown}", flush=True)


# Tables: means over replicates


def chosen(records: list[dict], fit: tuple[str, int], setting: str) -> list[dict]:
    """Records of all replicates of a problem with so many rows, of a setting."""
    return [r for r in records if (r["problem"], r["rows"], r["setting"]) == (*fit, setting)]


def with_error(values: list[float]) -> str:
    """Mean and its standard error, if there are several."""
    mean = f"{np.mean(values):.3f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def mean_of(records: list[dict], name: str) -> str:
    """Mean of a number over records."""
    return f"{np.mean([r[name] for r in records]):.3f}"


def markdown(header: list[str], body: list[list[str]]) -> str:
    """Return a table."""
    first, *lines = [f"| {' | '.join(line)} |\n" for line in [header, *body]]
    return "".join([first, "|---" * len(header) + "|\n", *lines])


INTERVAL_NAMES = {
    "width": "width",
    "kl": "KL",
    "aleatoric": "aleatoric",
    "epistemic": "epistemic",
    "truth": "entropy of the truth",
}


def interval_lines(records: list[dict], fit: tuple[str, int], setting: str) -> list[list[str]]:
    """Line of a problem and a setting, if there are records."""
    found = chosen(records, fit, setting)
    if not found:
        return []
    scores = [mean_of(found, name) for name in INTERVAL_NAMES]
    return [[setting, str(len(found)), with_error([r["coverage"] for r in found]), *scores]]


def intervals_table(records: list[dict], problems: list[str], settings: list[str]) -> str:
    """Coverage of 90% intervals of p(y | x)."""
    header = ["problem", "setting", "replicates", "coverage", *INTERVAL_NAMES.values()]
    body = [
        [name, *line]
        for (name, rows), setting in itertools.product(fits_of("intervals", problems), settings)
        for line in interval_lines(records, (name, rows), setting)
    ]
    return markdown(header, body)


def rows_table(records: list[dict], settings: list[str]) -> str:
    """Return the same for more and more rows of gp."""
    header = ["training rows", "setting", "replicates", "coverage", *INTERVAL_NAMES.values()]
    body = [
        [str(fit[1]), *line]
        for fit, setting in itertools.product(fits_of("rows", []), settings)
        for line in interval_lines(records, fit, setting)
    ]
    return markdown(header, body)


def sets_cell(records: list[dict], method: str, level: float) -> tuple[str, str]:
    """Coverage, its error and the size of sets; and the coverage of the class that has least."""
    found = [
        each
        for record in records
        for each in record["sets"]
        if (each["method"], each["level"]) == (method, level)
    ]
    covered = np.sum([each["covered"] for each in found], axis=0)
    by_class = covered / np.sum([record["by_class"] for record in records], axis=0)
    coverage = with_error([each["coverage"] for each in found])
    return f"{coverage}, {np.mean([each['size'] for each in found]):.2f}", f"{by_class.min():.3f}"


def sets_table(records: list[dict], problems: list[str], settings: list[str]) -> str:
    """Coverage and size of prediction sets."""
    levels = [f"level {level}: coverage, size" for level in LEVELS]
    header = ["problem", "setting", "sets", *levels, "class with the least coverage at 0.9"]
    body = []
    for fit, setting in itertools.product(fits_of("sets", problems), settings):
        if found := chosen(records, fit, setting):
            for method in METHODS:
                shown = {level: sets_cell(found, method, level) for level in LEVELS}
                scores = [score for score, _ in shown.values()]
                body.append([fit[0], setting, method, *scores, shown[0.9][1]])
    return markdown(header, body)


def rejection_table(records: list[dict], problems: list[str], settings: list[str]) -> str:
    """Error among the rows that are accepted, over the accepted rows of all replicates."""
    header = ["problem", "setting", "accepted", f"error among them (target {REJECT_ERROR})"]
    body = []
    for fit, setting in itertools.product(fits_of("sets", problems), settings):
        if found := [r["rejection"] for r in chosen(records, fit, setting)]:
            shares = np.array([each["accepted"] for each in found])
            errors = np.array([each["error"] or 0.0 for each in found])
            error = f"{shares @ errors / shares.sum():.3f}" if shares.any() else "none accepted"
            body.append([fit[0], setting, f"{shares.mean():.3f}", error])
    return markdown(header, body)


def far_table(records: list[dict], settings: list[str]) -> str:
    """Uncertainty by the distance from the centre of blobs."""
    header = ["setting", "at distance", *(f"{distance:g}" for distance in DISTANCES)]
    body = []
    for setting in settings:
        if found := chosen(records, *fits_of("far", []), setting):
            for name in found[0]["far"]:
                means = np.mean([r["far"][name] for r in found], axis=0)
                body.append([setting, name, *(f"{mean:.3f}" for mean in means)])
    return markdown(header, body)


def tables(
    records: list[dict], parts: list[str], problems: list[str], settings: list[str]
) -> dict[str, str]:
    """Tables of the parts, by name."""
    found = {}
    if "intervals" in parts:
        found["intervals"] = intervals_table(records, problems, settings)
    if "sets" in parts:
        found["sets"] = sets_table(records, problems, settings)
        found["rejection"] = rejection_table(records, problems, settings)
    if "far" in parts:
        found["far"] = far_table(records, settings)
    if "rows" in parts:
        found["rows"] = rows_table(records, settings)
    return found


def marker(name: str) -> str:
    """Return the comment above a table in a document."""
    return f"<!-- honesty: {name} -->\n"


def with_tables(text: str, found: dict[str, str]) -> str:
    """Put each table below its comment, in place of the one that is there."""
    for name, table in found.items():
        place = re.compile(rf"({re.escape(marker(name))}\n*)(\|.*\n)*")
        text = place.sub(lambda match, table=table: match[1] + table, text)
    return text


def parsed() -> argparse.Namespace:
    """Command line; names that are not known end it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=20, help="of each problem")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="of the classifier")
    parser.add_argument("--problems", default=",".join(SIMULATORS), help="of intervals and sets")
    parser.add_argument("--part", default=",".join(PARTS), help="cells and tables")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file of finished cells")
    parser.add_argument("--tables", action="store_true", help="compute nothing, print the tables")
    parser.add_argument("--document", type=Path, help="put the tables there: docs/trust.md")
    arguments = parser.parse_args()
    choices = (("settings", SETTINGS), ("problems", SIMULATORS), ("part", PARTS))
    for name, known in choices:
        given = getattr(arguments, name).split(",")
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
        setattr(arguments, name, given)
    return arguments


def main() -> None:
    arguments = parsed()
    parts, problems, settings = arguments.part, arguments.problems, arguments.settings
    warnings.simplefilter("ignore")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    if not arguments.tables:
        run(cells(parts, problems, arguments.replicates, settings), arguments.output)
    found = tables(kept(arguments.output), parts, problems, settings)
    for name, table in found.items():
        print(f"\n{marker(name)}\n{table}", end="")
    if arguments.document is not None:
        text = arguments.document.read_text(encoding="utf-8")
        arguments.document.write_text(with_tables(text, found), encoding="utf-8")


if __name__ == "__main__":
    main()
