# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # 1. Quick start
#
# **For whom:** someone who has fitted a scikit-learn classifier before and has never seen this
# package.
#
# **What you will see:** a classifier fitted to wines of three growers; whether its posterior can be
# trusted; what it predicts, and how sure it is; and a page that tells all this to somebody else.
#
# It takes about a minute, most of it for compiling. (With `BMSVM_SMALL=1` in the environment all
# notebooks run on less data and fewer draws; they then show that they run, and nothing else.)

# %%
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
from setting import size
from sklearn.model_selection import train_test_split

import bmsvm
from bmsvm import BMSVMClassifier, datasets, plots
from bmsvm.diagnostics import to_arviz
from bmsvm.report import write_report

# %% [markdown]
# ## Data
#
# 178 wines, 13 measurements of each, three growers. Half of the wines are held out.

# %%
wine = datasets.load_wine(as_frame=True)
growers = wine.target_names[wine.target]
X, X_new, y, y_new = train_test_split(
    wine.data, growers, train_size=size(89, 64), random_state=0, stratify=growers
)
X.iloc[:3, :6]

# %% [markdown]
# ## Fit
#
# As any classifier of scikit-learn. Features are standardised inside, the kernel's lengthscale is
# found by cross-validation, and four chains draw from the posterior of everything else. A model
# by itself shows its settings and whether the chains agree.

# %%
model = BMSVMClassifier(num_chains=size(4, 2), num_samples=size(200, 50), random_state=0)
model.fit(X, y)
model

# %% [markdown]
# If the chains had not converged, `fit` would have warned and said what to do:
# `model.fit_more(200)` makes 200 more draws of each chain.
#
# ## Do the chains agree?
#
# `to_arviz` hands everything to ArviZ, with classes, rows and features called by their names. In
# the table `r_hat` should be near 1 (1.01 is the usual limit) and the effective sample sizes,
# `ess_bulk`, some hundreds. `noise_variance` is $\sigma^2$, `precision` is $\tau$: what they mean
# is told in [the paper, equation by equation](02_the_paper.py).

# %%
data = to_arviz(model, new_rows=X_new)
az.summary(data)

# %% [markdown]
# In the pictures of the chains look for two things: on the left the curves of the chains lie on
# each other, on the right the chains wander over the same heights and none stays anywhere for long.

# %%
az.plot_trace(data, var_names=["noise_variance", "precision"])
plt.gcf().set_layout_engine("constrained")
plt.show()

# %% [markdown]
# ## Predict
#
# `predict_proba` is the average over the posterior, and `predict` always its largest entry.

# %%
chances = model.predict_proba(X_new)
print("accuracy on wines held out:", round(model.score(X_new, y_new), 3))
print("four of them:")
chances[:4].round(3)

# %% [markdown]
# The whole at a glance. The model has 13 features and paper has two dimensions: this is the plane
# of the first two principal components. A region has the colour of its likeliest class, pale where
# the model is in doubt; inside the dotted lines the doubt is more than half of what is possible.
# Ringed points are *support-like*: the wines near the borders, which an SVM would call support
# vectors. A wine can lie in a region of another colour because the plane does not hold all of its
# features.

# %%
plots.decision_regions(model, X, y)
plt.show()

# %% [markdown]
# Three classes make a triangle: a wine lies at the corner of a grower if the model is sure of that
# grower, and in the middle if it knows nothing. Look for wines whose marker is not that of their
# corner: these are the mistakes, and they should lie away from the corners.

# %%
plots.ternary(chances, y_new, classes=model.classes_)
plt.show()

# %% [markdown]
# ## How sure is that?
#
# A probability near one half may mean that the wine really could be either (*chance*), or that the
# model has seen too little to say (*ignorance*). `predict_uncertainty` tells them apart, and gives
# an interval to each probability. Below are all wines held out: the probability of the grower that
# each is given, and the interval that holds 90% of the posterior. Look how the intervals shrink to
# the right. On the left they reach from 0 to 1: from 89 wines the functions are not known well
# enough there, and some of them would name another grower with certainty.

# %%
known = model.predict_uncertainty(X_new)
order = np.argsort(chances.max(1))
best = chances[order].argmax(1)
middle, low, high = (each[order, best] for each in (known.probabilities, known.lower, known.upper))
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.vlines(
    np.arange(len(order)), low, high, linewidth=3, color="#56B4E9", label="90% of the posterior"
)
ax.plot(middle, "k.", label="predicted probability")
ax.set(xlabel="wines held out, the least certain first", ylabel="probability", ylim=(0, 1.02))
ax.legend(loc="lower right", framealpha=1)
plt.show()

# %% [markdown]
# Ignorance is largest where there are no data. Take the same wines and push them away from all that
# was seen:

# %%
far = model.predict_uncertainty(X_new + 30 * X.std())
print("ignorance, wines as they are:", known.epistemic.mean().round(3), "nats")
print("ignorance, wines far away:   ", far.epistemic.mean().round(3), "nats")

# %% [markdown]
# [Notebook 4](04_uncertainty_in_use.py) makes decisions of this. Whether probabilities come true
# can be seen on rows held out: in the **reliability diagram** points should lie on the diagonal, or
# it should at least pass through their bands; above it the model is too cautious, below it too
# bold. The **confusion matrix** has in each cell the number of wines, and below it what 90% of the
# posterior draws, each a classifier of its own, would have there.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
plots.reliability(chances, y_new, classes=model.classes_, ax=left)
plots.confusion(model, X_new, y_new, ax=right)
plt.show()

# %% [markdown]
# ## Keep and tell
#
# A saved model is one safetensors file that runs no code on loading; it predicts bit for bit the
# same, and its chains can be resumed. The report is one page with all of the above, for somebody without
# Python: open `output/report.html` in a browser.

# %%
output = Path("output")
output.mkdir(exist_ok=True)
bmsvm.save(model, output / "wine.bmsvm")
again = bmsvm.load(output / "wine.bmsvm")
print("the same to the last bit:", np.array_equal(again.predict_proba(X_new), chances))
write_report(model, output / "report.html", X_new, y_new)

# %% [markdown]
# ## Where to go on
#
# - [2. The paper, equation by equation](02_the_paper.py), if you want to know what is computed.
# - [3. Diagnosing the sampler](03_diagnosing_the_sampler.py), if you want to know whether to
#   believe it.
# - [4. Uncertainty in use](04_uncertainty_in_use.py), if you have decisions to make.
