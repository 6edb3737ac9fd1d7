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
# **What you get that an SVC cannot give: a classifier that knows what it does not know.** Both classifiers below learn from
# the same 178 wines of three growers, here with two measurements each. The SVC is tuned and calibrated. Asked about C, a wine
# unlike all that it has seen, it names a grower with a probability above 0.9. `BMSVMClassifier` returns nearly equal
# probabilities, with a credible interval from 0 to 1. For A both are certain. For B, between two growers, it shows how
# certain its probability is.

# %%
from bmsvm import BMSVMClassifier, datasets

num_chains, num_samples = 4, 200  # small: 2, 50

wine = datasets.load_wine(as_frame=True)
growers = wine.target_names[wine.target]
two = wine.data[["flavanoids", "color_intensity"]].to_numpy()
model = BMSVMClassifier(num_chains=num_chains, num_samples=num_samples, random_state=0)
model.fit(two, growers)
asked = [[3.1, 6.0], [2.4, 3.9], [5.6, 12.0]]  # A, B and C
known = model.predict_uncertainty(asked)

# %% tags=["hide-input"]
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

grid = {"svc__C": np.logspace(-1, 3, 9), "svc__gamma": np.logspace(-2, 1, 7)}
tuned = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid).fit(two, growers)
best = tuned.best_estimator_
svc = CalibratedClassifierCV(best, method="temperature", ensemble=False).fit(two, growers)

colours = np.array([to_rgb(name) for name in ("#0072B2", "#E69F00", "#009E73")])
edges = (-0.5, 7, -1, 16)
plane = np.stack(np.meshgrid(np.linspace(*edges[:2], 90), np.linspace(*edges[2:], 90)), -1)
figure, axes = plt.subplots(1, 3, figsize=(12, 4), width_ratios=(1, 1, 0.8), layout="constrained")
for ax, each, title in zip(axes, (svc, model), ("SVC", "BMSVMClassifier"), strict=False):
    chances = each.predict_proba(plane.reshape(-1, 2)).reshape(90, 90, 3)
    strength = 1.5 * chances.max(-1, keepdims=True) - 0.5
    painted = 1 - strength * (1 - colours[chances.argmax(-1)])
    ax.imshow(painted, origin="lower", extent=edges, aspect="auto")
    for name, colour, marker in zip(model.classes_, colours, "osD", strict=True):
        style = {"color": colour, "marker": marker, "edgecolors": "white"}
        ax.scatter(*two[growers == name].T, 25, label=name, **style)
    for letter, where in zip("ABC", asked, strict=True):
        box = {"boxstyle": "circle", "facecolor": "white"}
        ax.annotate(letter, where, weight="bold", ha="center", va="center", bbox=box)
    ax.set(title=f"{title}: pale is uncertain", xlabel="flavanoids", ylabel="colour intensity")
axes[1].legend(loc="upper center", ncols=3, fontsize="small", handletextpad=0.1)
best = range(3), known.probabilities.argmax(1)
axes[2].vlines(list("ABC"), known.lower[best], known.upper[best], "#56B4E9", linewidth=8)
axes[2].plot(known.probabilities[best], "ko", label="BMSVMClassifier\nand 90% interval")
axes[2].plot(svc.predict_proba(asked).max(1), "kx", markersize=9, label="SVC")
axes[2].set(title="probability of the predicted class", xlim=(-0.5, 2.5), ylim=(-0.02, 1.04))
axes[2].legend(loc="lower left", fontsize="small")
plt.show()

# %% [markdown]
# **For whom:** someone who has fitted a scikit-learn classifier before and does not know this package.
#
# **What you will see:** the same with all measurements: a classifier fitted to wines of three growers; the convergence
# of its chains; its predictions and their uncertainty; and a report for other people.
#
# The notebook needs `pip install "bmsvm[notebooks]"` and no other file. It takes about a minute, mostly for compilation.

# %%
from pathlib import Path

import arviz as az

import bmsvm
from bmsvm import plots
from bmsvm.arviz import to_arviz
from bmsvm.report import write_report

# %% [markdown]
# ## Data
#
# 178 wines of three growers, with 13 measurements each. Half of the wines are held out.

# %%
X, X_new, y, y_new = train_test_split(
    wine.data, growers, train_size=89, random_state=0, stratify=growers
)
X.iloc[:3, :6]

# %% [markdown]
# ## Fit
#
# `fit` works as for any scikit-learn classifier. It standardises the features, chooses a kernel and its
# lengthscale by cross-validation, and draws from the posterior of everything else with four chains, until there are enough draws. In a
# notebook a model shows its settings and whether the chains agree.

# %%
model = BMSVMClassifier(num_chains=num_chains, num_samples=num_samples, random_state=0)
model.fit(X, y)
model

# %% [markdown]
# The chains end as soon as the class probabilities are determined well. If the chains did not agree by then, `fit` would
# warn and recommend what to do. `model.fit_more(200)` makes 200 more draws of each chain.
#
# ## Convergence
#
# `to_arviz` converts the model for ArviZ, with named classes, rows and features. In the table `r_hat` should be near
# 1 (1.01 is the usual limit for a table, 1.05 is enough for predictions), and the effective sample size `ess_bulk` should
# be several hundred (400 and 200). `noise_variance` is
# $\sigma^2$ and `precision` is $\tau$; [notebook 2](02_the_paper.ipynb) explains them. Predictions need few draws; for a table
# with small Monte Carlo errors there are more draws here.

# %%
model.fit_more(num_samples)
data = to_arviz(model, new_rows=X_new)
az.summary(data)

# %% [markdown]
# In the trace plots, the densities of the chains on the left should coincide. On the right, the chains should cover
# the same range, and none should stay in one place for long.

# %%
az.plot_trace(data, var_names=["noise_variance", "precision"])
plt.gcf().set_layout_engine("constrained")
plt.show()

# %% [markdown]
# ## Predict
#
# `predict_proba` is the average over the posterior. `predict` returns the most probable class.

# %%
chances = model.predict_proba(X_new)
print("accuracy on held-out wines:", round(model.score(X_new, y_new), 3))
print("four of them:")
chances[:4].round(3)

# %% [markdown]
# The next plot shows the plane of the first two principal components of the 13 features. A region has the
# colour of its most probable class, and is pale where the model is uncertain. Inside the dotted lines the entropy is
# more than half of its maximum. Ringed points are wines near the boundaries, similar to the support vectors of an SVM. A wine can
# lie in a region of another colour, because the plane does not contain all features.

# %%
plots.decision_regions(model, X, y)
plt.show()

# %% [markdown]
# The probabilities of three classes can be drawn in a triangle. A corner is certainty of one grower, the
# centre is equal probabilities. Wines whose marker is not that of the nearest corner are errors; they should be far from the
# corners.

# %%
plots.ternary(chances, y_new, classes=model.classes_)
plt.show()

# %% [markdown]
# ## Uncertainty
#
# A probability near one half has two possible causes: the wine could really be from either grower (*aleatoric*
# uncertainty), or the model has seen too few similar wines (*epistemic* uncertainty). `predict_uncertainty`
# separates them and returns a credible interval for each probability. The plot shows, for all held-out wines, the probability
# of the predicted grower with its 90% credible interval. The intervals on the left are wide, because 89 wines do not determine the functions
# well there.

# %%
known = model.predict_uncertainty(X_new)
order = np.argsort(chances.max(1))
best = chances[order].argmax(1)
middle, low, high = (each[order, best] for each in (known.probabilities, known.lower, known.upper))
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.vlines(
    np.arange(len(order)), low, high, linewidth=3, color="#56B4E9", label="90% credible interval"
)
ax.plot(middle, "k.", label="predicted probability")
ax.set(xlabel="held-out wines, least certain first", ylabel="probability", ylim=(0, 1.02))
ax.legend(loc="lower right", framealpha=1)
plt.show()

# %% [markdown]
# Epistemic uncertainty is largest far from the data. Here the same wines are moved away from all training wines:

# %%
far = model.predict_uncertainty(X_new + 30 * X.std())
print("epistemic, wines as they are:", known.epistemic.mean().round(3), "nats")
print("epistemic, wines far away:   ", far.epistemic.mean().round(3), "nats")

# %% [markdown]
# [Notebook 4](04_uncertainty_in_use.ipynb) uses this for decisions. Held-out rows show whether the probabilities are
# calibrated. In the **reliability diagram** the bands of the points should contain the diagonal. Points above it
# mean that the model is too cautious, points below it that it is overconfident. A cell of the **confusion matrix** has the
# number of wines, and below it the interval of that number over 90% of the posterior draws.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
plots.reliability(chances, y_new, classes=model.classes_, ax=left)
plots.confusion(model, X_new, y_new, ax=right)
plt.show()

# %% [markdown]
# ## Save and report
#
# A saved model is one safetensors file; loading runs no code. The loaded model has the same predictions, bit for
# bit, and its chains can be continued. The report is one HTML page for people without Python: open
# `output/report.html` in a browser.

# %%
output = Path("output")
output.mkdir(exist_ok=True)
bmsvm.save(model, output / "wine.bmsvm")
again = bmsvm.load(output / "wine.bmsvm")
print("the same bits:", np.array_equal(again.predict_proba(X_new), chances))
write_report(model, output / "report.html", X_new, y_new)

# %% [markdown]
# ## Next
#
# - [2. The paper, equation by equation](02_the_paper.ipynb): what is computed.
# - [3. Diagnosing the sampler](03_diagnosing_the_sampler.ipynb): how to check the chains.
# - [4. Uncertainty in use](04_uncertainty_in_use.ipynb): decisions.
