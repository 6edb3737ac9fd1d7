"""How good the probabilities are: ``python benchmarks/quality.py [--data wine,...] [--splits 10]``.

Random splits, the same for all classifiers, each with standardised inputs: log-loss, Brier score,
error, expected calibration error (15 bins of the confidence), and how well the classifier's
uncertainty tells rows of a class never seen, and noise far away, from rows like those it was
trained on (area under the ROC curve, for rivals the better of entropy and least confidence).

Finished cells are kept in the output file and not computed again; delete it to begin anew.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from shared import seconds_of
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from bmsvm import PAPER, BMSVMClassifier, datasets
from bmsvm.plots.reliability import reliability_table

TRAINING_ROWS = {
    "wine": 120,
    "glass": 150,
    "vehicle": 300,
    "vehicle3": 300,
    "waveform": 300,
    "digits": 300,
    "cancer": 200,
    "eleven": 500,
}
TEST_ROWS = 1500
FAR_ROWS = 300
SCORES = ("log_loss", "brier", "error", "ece", "unseen", "far")
HIGHER_IS_BETTER = ("unseen", "far")


def load(name: str, split: int):
    if name == "waveform":
        return datasets.make_waveform(2300, seed=split, return_X_y=True)
    if name == "eleven":
        return datasets.make_eleven(2000, seed=0, return_X_y=True)
    if name == "vehicle3":
        return datasets.load_vehicle(classes=3, return_X_y=True)
    if name == "digits":
        return load_digits(return_X_y=True)
    if name == "cancer":
        return load_breast_cancer(return_X_y=True)
    return getattr(datasets, f"load_{name}")(return_X_y=True)


TUNED: dict[bytes, dict] = {}
"""Best (C, gamma) of training rows seen before: both SVCs need them."""


def best_svc(X, y, folds: int) -> dict:
    rows = X.tobytes() + y.tobytes()
    if rows not in TUNED:
        grid = {"C": np.logspace(-1, 3, 9), "gamma": np.logspace(-4, 0.5, 10)}
        TUNED[rows] = GridSearchCV(SVC(), grid, cv=folds).fit(X, y).best_params_
    return TUNED[rows]


class CalibratedSVC:
    """SVC with (C, gamma) by 5-fold cross-validation, its probabilities by Platt scaling."""

    def __init__(self, native: bool):
        self.native = native

    def fit(self, X, y):
        folds = int(max(2, min(5, np.unique(y, return_counts=True)[1].min())))
        best = best_svc(X, y, folds)
        if self.native:
            model = SVC(**best, probability=True, random_state=0)
        else:
            model = CalibratedClassifierCV(SVC(**best), cv=folds)
        self.model = model.fit(X, y)
        return self

    def predict_proba(self, X):
        return self.model.predict_proba(X)


def classifiers(seed: int) -> dict:
    return {
        "bmsvm": lambda: BMSVMClassifier(random_state=seed),
        "calibrated SVC": lambda: CalibratedSVC(native=False),
        "SVC probability": lambda: CalibratedSVC(native=True),
        "GP classifier": lambda: GaussianProcessClassifier(
            ConstantKernel(1.0, (1e-2, 1e4)) * RBF(3.0, (1e-1, 1e3)), random_state=seed
        ),
        "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)),
        # Other settings of the first, where they are asked for by --kinds.
        "bmsvm evidence": lambda: BMSVMClassifier(lengthscale="evidence", random_state=seed),
        "bmsvm sample": lambda: BMSVMClassifier(lengthscale="sample", random_state=seed),
        "bmsvm as averaged": lambda: BMSVMClassifier(
            lengthscale="evidence", predictive="posterior", random_state=seed
        ),
        "bmsvm paper's priors": lambda: BMSVMClassifier(
            hyperparameters=PAPER, predictive="posterior", random_state=seed
        ),
    }


KINDS = ("bmsvm", "calibrated SVC", "SVC probability", "GP classifier", "logistic")


def proper_scores(probabilities: np.ndarray, labels: np.ndarray) -> dict:
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


def uncertainties(model, X) -> list[np.ndarray]:
    """What the classifier says of its own ignorance; the best of the list counts."""
    if isinstance(model, BMSVMClassifier):
        return [np.asarray(model.predict_uncertainty(X).epistemic)]
    p = model.predict_proba(X)
    return [-p.max(1), -(p * np.log(np.clip(p, 1e-12, None))).sum(1)]


def detection(model, inside: np.ndarray, outside: np.ndarray) -> float:
    rows = np.concatenate([inside, outside])
    truth = np.repeat([0, 1], [len(inside), len(outside)])
    return float(max(roc_auc_score(truth, score) for score in uncertainties(model, rows)))


def measure(name: str, split: int, kind: str) -> dict:
    X, y = load(name, split)
    _, y = np.unique(y, return_inverse=True)
    train, test, label, truth = train_test_split(
        X, y, train_size=TRAINING_ROWS[name], stratify=y, random_state=split
    )
    test, truth = test[:TEST_ROWS], truth[:TEST_ROWS]
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    build = classifiers(split)[kind]
    model = build()
    seconds = fit_seconds(model, train, label)
    scores = proper_scores(np.asarray(model.predict_proba(test)), truth)
    rng = np.random.default_rng(split)
    far = 5 * rng.normal(size=(FAR_ROWS, X.shape[1]))
    scores["far"] = detection(model, test, far)
    if len(np.unique(y)) > 2:  # a class is left out of the training rows
        unseen = split % len(np.unique(y))
        _, rest = np.unique(label[label != unseen], return_inverse=True)
        model = build().fit(train[label != unseen], rest)
        scores["unseen"] = detection(model, test[truth != unseen], test[truth == unseen])
    return {"data": name, "split": split, "kind": kind, "fit_seconds": seconds, **scores}


def table(records: list[dict], kinds: list[str]) -> str:
    """Means over splits, with paired standard errors of the first less the best other."""
    lines, ranks = [], {}
    for score in SCORES:
        lines += ["", f"### {score}", "", "| data | splits | " + " | ".join(kinds) + " | |"]
        lines.append("|---" * (len(kinds) + 3) + "|")
        for name in TRAINING_ROWS:
            cells = {
                kind: {
                    r["split"]: r[score]
                    for r in records
                    if (r["data"], r["kind"]) == (name, kind) and score in r
                }
                for kind in kinds
            }
            splits = sorted(set.intersection(*(set(cells[kind]) for kind in kinds)))
            if not splits:
                continue
            values = {kind: np.array([cells[kind][s] for s in splits]) for kind in kinds}
            sign = -1 if score in HIGHER_IS_BETTER else 1
            means = {kind: v.mean() for kind, v in values.items()}
            rival = min(kinds[1:] or kinds, key=lambda kind: sign * means[kind])
            gap = sign * (values[kinds[0]] - values[rival])
            error = gap.std(ddof=1) / np.sqrt(len(splits)) if len(splits) > 1 else np.nan
            verdict = "best" if gap.mean() <= 0 else "within" if gap.mean() <= error else "behind"
            for kind, rank in zip(kinds, rankdata([sign * means[k] for k in kinds]), strict=True):
                ranks.setdefault((score, kind), []).append(rank)
            shown = " | ".join(f"{means[kind]:.4f}" for kind in kinds)
            difference = f"{verdict} ({gap.mean():+.4f} ± {error:.4f})"
            lines.append(f"| {name} | {len(splits)} | {shown} | {difference} |")
        shown = " | ".join(f"{np.mean(ranks.get((score, kind), [np.nan])):.2f}" for kind in kinds)
        lines.append(f"| average rank | | {shown} | |")
    return "\n".join(lines)


def fit_times(output: Path) -> None:
    """Fit time beside GaussianProcessClassifier's, compiled programs warm."""
    print("\n| rows | classes | bmsvm | GP classifier | ratio | bmsvm's first fit, compiling |")
    print("|---|---|---|---|---|---|")
    records = []
    for n, classes in ((300, 4), (1000, 6)):
        X, y = make_classification(
            n, 12, n_informative=8, n_classes=classes, n_clusters_per_class=1, random_state=0
        )
        X = StandardScaler().fit_transform(X)
        models = (
            BMSVMClassifier(random_state=0),
            BMSVMClassifier(random_state=1),
            classifiers(0)["GP classifier"](),
        )
        first, warm, rival = (fit_seconds(model, X, y) for model in models)
        print(
            f"| {n} | {classes} | {warm:.1f} s | {rival:.1f} s | {warm / rival:.2f} "
            f"| {first:.1f} s |",
            flush=True,
        )
        seconds = {"bmsvm": warm, "GP classifier": rival, "bmsvm, compiling": first}
        records.append({"rows": n, "classes": classes, "seconds": seconds})
    output.write_text(json.dumps(records, indent=1) + "\n")


def fit_seconds(model, X, y) -> float:
    return seconds_of(lambda: model.fit(X, y))[0]


def kept(output: Path) -> list[dict]:
    """Return the finished cells of the file, to which several runs may add at once."""
    return [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(TRAINING_ROWS))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--times", action="store_true", help="measure fit times only")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/quality.jsonl"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    if arguments.times:
        fit_times(arguments.output.with_name("fit_times.json"))
        return
    done = {(r["data"], r["split"], r["kind"]) for r in kept(arguments.output)}
    for split in range(arguments.splits):
        for name in arguments.data.split(","):
            for kind in arguments.kinds.split(","):
                if (name, split, kind) in done:
                    continue
                record = measure(name, split, kind)
                with arguments.output.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                shown = " ".join(f"{s} {record[s]:.4f}" for s in SCORES if s in record)
                print(
                    f"{name:9} {split:2} {kind:16} {record['fit_seconds']:6.1f}s {shown}",
                    flush=True,
                )
    print(table(kept(arguments.output), arguments.kinds.split(",")))


if __name__ == "__main__":
    main()
