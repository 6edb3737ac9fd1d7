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
# **For whom:** someone who has to act on predictions, and may ask a person where the machine is in
# doubt.
#
# **What you will see:** which rows to hand on, so that the rest is right as often as you need; sets
# of classes instead of single ones; and what the model says of things it has never seen, beside
# what an SVM says.

# %%
import copy

import matplotlib.pyplot as plt
import numpy as np
from setting import size
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from bmsvm import BMSVMClassifier, datasets, plots

# %% [markdown]
# ## Silhouettes of vehicles
#
# 846 silhouettes, 18 measurements of each: a bus, two makes of car (Opel and Saab) that look alike,
# and a van. **The van is kept from the model altogether.** Of the others some are learned from and
# the rest is held out. The search for the lengthscale may warn that it has not quite ended; nothing
# below hangs on its last digit.

# %%
vehicle = datasets.load_vehicle()
names = vehicle.target_names[vehicle.target]
seen = names != "van"
X, X_new, y, y_new = train_test_split(
    vehicle.data[seen], names[seen], train_size=size(300, 64), random_state=0, stratify=names[seen]
)
vans = vehicle.data[~seen]
model = BMSVMClassifier(num_chains=size(4, 2), num_samples=size(200, 50), random_state=0).fit(X, y)
svc = make_pipeline(StandardScaler(), CalibratedClassifierCV(SVC(C=10), ensemble=False)).fit(X, y)
chances = model.predict_proba(X_new)
print(
    "error:",
    np.mean(model.predict(X_new) != y_new).round(3),
    " SVC:",
    np.mean(svc.predict(X_new) != y_new).round(3),
)

# %% [markdown]
# ## Hand on the doubtful ones
#
# From the right to the left of this picture ever more rows are kept. The line is how often the rest
# is right, with its interval; the dashed line is what the probabilities promise without seeing a
# label. Read off how many rows must be handed on for the accuracy you need; and if the two lines
# lie together, you can read it off the promise, before there are labels.

# %%
plots.rejection(chances, y_new, classes=model.classes_)
plt.show()

# %% [markdown]
# `predict_reject` does that: it keeps the most certain rows, as many as their expected error
# allows, and masks the rest. With `each_row=True` every single row kept has to meet the target,
# which keeps fewer, and no row depends on the others.

# %%
for error in (0.2, 0.1, 0.05):
    for each_row in (False, True):
        answers = model.predict_reject(X_new, error=error, each_row=each_row)
        kept = ~answers.mask
        wrong = np.mean(answers.data[kept] != y_new[kept]) if kept.any() else np.nan
        what = "each row" if each_row else "together"
        print(
            f"target {error:.2f} {what}: {kept.mean():4.0%} of the rows kept, {wrong:.3f} of them wrong"
        )

# %% [markdown]
# ## Sets instead of labels
#
# `prediction_sets` gives the smallest set of classes that holds the truth with some probability.
# What it should hold: at each level, at least that share of the rows has its class in the set
# (left). The line lies above the promise because a set takes in whole classes, and the last of them
# mostly overshoots. What it costs: the number of classes in it (right). Here most sets of two
# should be *opel or saab*, which is an honest answer; they are counted below.

# %%
levels = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
truth = np.searchsorted(model.classes_, y_new)
sets = [model.prediction_sets(X_new, level) for level in levels]
covered = [each[np.arange(len(truth)), truth].mean() for each in sets]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot([0.5, 1], [0.5, 1], "--", color="0.4", label="as promised")
left.plot(levels, covered, "o-", color="#0072B2", label="found")
left.set(xlabel="level asked for", ylabel="share of rows whose class is in the set")
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
right.set(
    xticks=range(len(levels)), xticklabels=levels, xlabel="level asked for", ylabel="share of rows"
)
right.legend(loc="lower left")
plt.show()

# %%
pairs, counts = np.unique(
    ["+".join(model.classes_[row]) for row in sets[4] if row.sum() == 2], return_counts=True
)
dict(zip(pairs.tolist(), counts.tolist(), strict=True))

# %% [markdown]
# ## Chance and ignorance
#
# Doubt has two sources. *Aleatoric*: the functions are known and still leave both cars possible.
# *Epistemic*: the posterior does not agree on the functions, for want of data there. The vans are
# the test: the model has no class for them, and should notice. In the picture each point is a
# silhouette. Cars that look alike have much of the first; vans should lie higher than the rest.

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
    label="classes that were learned",
)
ax.plot(
    unknown.aleatoric,
    unknown.epistemic,
    "^",
    markersize=5,
    alpha=0.6,
    color="#D55E00",
    label="vans, never seen",
)
ax.set(xlabel="chance: aleatoric, nats", ylabel="ignorance: epistemic, nats")
ax.legend()
plt.show()

# %% [markdown]
# As a number: the chance that a van is more doubtful than a silhouette of a known class (AUROC; one
# half is guessing, one is always). For the SVM the doubt is one less the largest calibrated
# probability.

# %%
which = np.repeat([0, 1], [len(X_new), len(vans)])
doubts = {
    "bmsvm, ignorance": np.concatenate([known.epistemic, unknown.epistemic]),
    "bmsvm, one less the largest probability": 1
    - model.predict_proba(np.concatenate([X_new, vans])).max(1),
    "SVC, one less the largest probability": 1
    - svc.predict_proba(np.concatenate([X_new, vans])).max(1),
}
for name, doubt in doubts.items():
    print(f"{name:40s} {roc_auc_score(which, doubt):.3f}")

# %% [markdown]
# ## Walking away from the data
#
# Take held-out rows and move them away from the mean of the data, in a random direction each. Far
# from all data nobody can know the class. Solid: the Gaussian process's own uncertainty, the
# default (`uncertainty="gp"`), which grows as one leaves. Dashed: the kernel expansion (1) as in
# the paper (`"representer"`), whose functions vanish far away, whatever was learned. Dotted: the
# SVM, which goes to one and the same answer for everything.

# %%
rng = np.random.default_rng(0)
direction = rng.normal(size=(40, X.shape[1]))
direction /= np.linalg.norm(direction, axis=1, keepdims=True)
distances = np.array([0, 1, 2, 4, 8, 16, 32])
walks = [X_new[:40] + step * direction * X.std(0) for step in distances]
plain = copy.copy(model).set_params(uncertainty="representer")  # the same chains
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for each, line, label in ((model, "-", "gp"), (plain, "--", "representer")):
    left.plot(
        distances, [each.predict_uncertainty(w).epistemic.mean() for w in walks], line, label=label
    )
    right.plot(distances, [each.predict_proba(w).max(1).mean() for w in walks], line, label=label)
right.plot(
    distances, [svc.predict_proba(w).max(1).mean() for w in walks], ":", label="SVC, calibrated"
)
left.set(xlabel="steps away, in standard deviations", ylabel="ignorance, nats")
right.set(
    xlabel="steps away, in standard deviations", ylabel="largest probability, mean", ylim=(0, 1.02)
)
right.axhline(1 / 3, color="0.7", linewidth=1)
left.legend()
right.legend()
plt.show()

# %% [markdown]
# ## What to remember
#
# - `predict_reject(X, error=0.05)` if there is somebody to ask; check the promise once with
#   `plots.rejection` on rows held out.
# - `prediction_sets(X, level=0.9)` if some answer is better than none.
# - `predict_uncertainty(X).epistemic` to find what the model has not seen the like of. It sees
#   distance from the data, not every kind of novelty: something new that lies among the old classes
#   looks like one of them.
