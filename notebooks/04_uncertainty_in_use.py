# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # 4. Uncertainty in use
#
# **For whom:** someone who acts on predictions and can pass uncertain cases to a person.
#
# **What you will see:** which rows to pass on for a given accuracy of the others; sets of classes
# instead of single classes; and the predictions for an unseen class, compared with those of an SVM.

# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from bmsvm import BMSVMClassifier, datasets, plots

# %% [markdown]
# ## Silhouettes of vehicles
#
# 846 silhouettes with 18 measurements each: a bus, two similar makes of car (Opel and Saab), and a van. **The vans are
# not used for training.** The other silhouettes are split into training rows and held-out rows.

# %%
num_rows, num_chains, num_samples = 300, 8, 200  # small: 64, 2, 50
vehicle = datasets.load_vehicle()
names = vehicle.target_names[vehicle.target]
seen = names != "van"
X, X_new, y, y_new = train_test_split(
    vehicle.data[seen], names[seen], train_size=num_rows, random_state=0, stratify=names[seen]
)
vans = vehicle.data[~seen]
model = BMSVMClassifier(num_chains=num_chains, num_samples=num_samples, random_state=0).fit(X, y)

# %% [markdown]
# The SVM that it is compared with has $C$ and $\gamma$ from cross-validation, and probabilities calibrated by temperature
# scaling on held-out folds.

# %%
grid = {"svc__C": np.logspace(-1, 4, 11), "svc__gamma": np.logspace(-4, 0, 9)}
tuned = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=5).fit(X, y)
svc = CalibratedClassifierCV(tuned.best_estimator_, method="temperature", ensemble=False, cv=5)
svc.fit(X, y)
chances = model.predict_proba(X_new)
for name, each in {"BMSVMClassifier": model, "SVC": svc}.items():
    error = np.mean(each.predict(X_new) != y_new)
    loss = log_loss(y_new, each.predict_proba(X_new))
    print(f"{name:16s} error {error:.3f}, log-loss {loss:.3f}")

# %% [markdown]
# ## Reject uncertain rows
#
# The plot shows the accuracy of the accepted rows against the share of rejected rows. The solid line is the observed
# accuracy with its interval. The dashed line is the accuracy expected from the probabilities alone, without labels. If the
# two lines agree, the expected accuracy can be used where no labels are known.

# %%
plots.rejection(chances, y_new, classes=model.classes_)
plt.show()

# %% [markdown]
# `predict_reject` accepts the most certain rows, as many as the target of their expected error allows, and masks the
# others. With `each_row=True` each accepted row has to meet the target on its own. This accepts fewer rows, and the
# decision for a row does not depend on the other rows.

# %%
for error in (0.2, 0.1, 0.05):
    for each_row in (False, True):
        answers = model.predict_reject(X_new, error=error, each_row=each_row)
        kept = ~answers.mask
        wrong = np.mean(answers.data[kept] != y_new[kept]) if kept.any() else np.nan
        what = "each row" if each_row else "together"
        print(
            f"target {error:.2f} {what}: {kept.mean():4.0%} of the rows accepted, {wrong:.3f} of them wrong"
        )

# %% [markdown]
# ## Sets instead of labels
#
# `prediction_sets` returns the smallest set of classes with a given probability. The left plot shows the share of rows whose
# class is in the set, which should be at least the level. It is above the level, because a set has whole classes. The right plot
# shows the sizes of the sets. Most sets of two should be *opel or saab*; the next cell counts them.

# %%
levels = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
truth = np.searchsorted(model.classes_, y_new)
sets = [model.prediction_sets(X_new, level) for level in levels]
covered = [each[np.arange(len(truth)), truth].mean() for each in sets]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot([0.5, 1], [0.5, 1], "--", color="0.4", label="nominal")
left.plot(levels, covered, "o-", color="#0072B2", label="observed")
left.set(xlabel="level", ylabel="share of rows whose class is in the set")
left.legend()
bottom = np.zeros(len(levels))
for count, colour, hatch in zip(
    (1, 2, 3), ("#0072B2", "#E69F00", "#009E73"), ("", "//", ".."), strict=True
):
    share = np.array([np.mean(each.sum(1) == count) for each in sets])
    right.bar(
        range(len(levels)),
        share,
        bottom=bottom,
        color=colour,
        hatch=hatch,
        label=f"{count} of 3 classes",
    )
    bottom += share
right.set(xticks=range(len(levels)), xticklabels=levels, xlabel="level", ylabel="share of rows")
right.legend(loc="lower left")
plt.show()

# %%
pairs, counts = np.unique(
    ["+".join(model.classes_[row]) for row in sets[4] if row.sum() == 2], return_counts=True
)
dict(zip(pairs.tolist(), counts.tolist(), strict=True))

# %% [markdown]
# ## Aleatoric and epistemic uncertainty
#
# Uncertainty has two parts. *Aleatoric*: it would remain if the functions were known, as for the two similar cars.
# *Epistemic*: the data do not determine the functions there. The model has no class for vans, so their epistemic
# uncertainty should be large. Each point of the plot is a silhouette.

# %%
known, unknown = model.predict_uncertainty(X_new), model.predict_uncertainty(vans)
figure, ax = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
ax.plot(
    known.aleatoric,
    known.epistemic,
    "o",
    markersize=4,
    alpha=0.6,
    color="#0072B2",
    label="known classes",
)
ax.plot(
    unknown.aleatoric,
    unknown.epistemic,
    "^",
    markersize=5,
    alpha=0.6,
    color="#D55E00",
    label="vans, unseen",
)
ax.set(xlabel="aleatoric, nats", ylabel="epistemic, nats")
ax.legend()
plt.show()

# %% [markdown]
# The area under the ROC curve is the probability that a van is more uncertain than a silhouette of a known class (0.5 is
# guessing). For the SVM the uncertainty is one minus the largest calibrated probability.

# %%
which = np.repeat([0, 1], [len(X_new), len(vans)])
uncertainties = {
    "bmsvm, epistemic": np.concatenate([known.epistemic, unknown.epistemic]),
    "bmsvm, one minus the largest probability": 1
    - model.predict_proba(np.concatenate([X_new, vans])).max(1),
    "SVC, one minus the largest probability": 1
    - svc.predict_proba(np.concatenate([X_new, vans])).max(1),
}
for name, values in uncertainties.items():
    print(f"{name:42s} {roc_auc_score(which, values):.3f}")

# %% [markdown]
# ## Rows far from the data
#
# Held-out rows are moved away, each in a random direction. Solid: the default, in which a new row has the variance of
# the Gaussian process that the training rows leave, so that the uncertainty grows with the distance. Dashed: the kernel
# expansion (1) as in the paper (`Predictive(remainder=False)`), whose functions vanish far away. Dotted: the SVM, whose
# answer far away is the same for all rows.

# %%
rng = np.random.default_rng(0)
direction = rng.normal(size=(40, X.shape[1]))
direction /= np.linalg.norm(direction, axis=1, keepdims=True)
distances = np.array([0, 1, 2, 4, 8, 16, 32])
walks = [X_new[:40] + step * direction * X.std(0) for step in distances]
standardized = [model.standardized_rows(walk) for walk in walks]
process = model.predictive_
expansion = replace(process, posterior=replace(process.posterior, remainder=False))  # same draws
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for predictive, line, label in (
    (process, "-", "Gaussian process"),
    (expansion, "--", "kernel expansion (1)"),
):
    epistemic = [predictive.uncertainty(rows).epistemic.mean() for rows in standardized]
    largest = [predictive.probabilities(rows).max(1).mean() for rows in standardized]
    left.plot(distances, epistemic, line, label=label)
    right.plot(distances, largest, line, label=label)
right.plot(
    distances, [svc.predict_proba(w).max(1).mean() for w in walks], ":", label="SVC, calibrated"
)
left.set(xlabel="distance, in standard deviations", ylabel="epistemic, nats")
right.set(
    xlabel="distance, in standard deviations", ylabel="largest probability, mean", ylim=(0, 1.02)
)
right.axhline(1 / 3, color="0.7", linewidth=1)
left.legend()
right.legend()
plt.show()

# %% [markdown]
# ## Summary
#
# - `predict_reject(X, error=0.05)` if uncertain rows can be passed on. Check it with `plots.rejection` on held-out rows.
# - `prediction_sets(X, level=0.9)` if several classes are a useful answer.
# - `predict_uncertainty(X).epistemic` to find rows unlike the training rows. It measures distance from the data: a new
#   class that lies among the known classes is not detected.
