# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # 5. Theta three ways
#
# **For whom:** someone who has tuned the width of a Gaussian kernel on a grid and wants to know the
# alternatives.
#
# **What you will see:** the lengthscale $\theta$ of $\exp(-|x - x'|^2 / (2\theta^2))$ by
# cross-validation of posteriors, by least squares with rows left out, and sampled; where the three agree, and what
# each costs. At the end the same for the regularisation.

# %%
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV

from bmsvm import BMSVMClassifier, MSVMClassifier, Sampled, SquaresCV, datasets, plots
from bmsvm.machines import Grid

# %% [markdown]
# ## Data, and three models
#
# Waveform: 21 features, three classes, any number of new rows. The lengthscale is in units of the standardised
# features. Distances between rows are about $\sqrt{2 \cdot 21} \approx 6.5$.
#
# - scikit-learn's `GridSearchCV` fits every value of a grid on every fold, and takes the value with the smallest log-loss
#   on held-out rows.
# - `SquaresCV` regresses codes of the classes on the rows. These least squares predict each row without its label in
#   closed form, so that leave-one-out at a $\theta$ is one eigendecomposition. Scores of nine values of $\theta$ with ten
#   of $\tau$ are their weights, and the result is the mean of $\log \theta$. Its chains sample $\tau$.
# - `Sampled` makes $\theta$ a parameter with a uniform prior, on a grid of 64 values whose Gram matrices are factored once.
#
# The default of the classifier is a fourth way, `ModeCV`, which is not in the paper. It cross-validates modes instead of
# posteriors, which is fast, and chooses $\tau$ together with $\theta$. The default also chooses between a Gaussian and a
# Laplacian kernel, and weighs the features by their relevance; here the kernel is Gaussian and features count alike.

# %%
n, m = 150, 2000  # small: 64, 200
values, folds, theta_grid = 9, 5, None  # small: 3, 2, np.geomspace(1, 40, 8)
num_chains, num_warmup, num_samples = 4, 150, 200  # small: 2, 50, 50
X, y = datasets.make_waveform(n + m, seed=1, return_X_y=True)
X, y, X_new, y_new = X[:n], y[:n], X[n:], y[n:]
grid = np.geomspace(1, 40, values)
ways = {
    "SquaresCV": SquaresCV(),
    "Sampled": Sampled(grid=theta_grid),
}
length = {
    "kernel": "gaussian",
    "standardize": "robust",
    "num_chains": num_chains,
    "num_warmup": num_warmup,
    "num_samples": num_samples,
    "random_state": 0,
}
search = GridSearchCV(
    BMSVMClassifier(**length), {"lengthscale": grid}, scoring="neg_log_loss", cv=folds
)
unfitted = {way: BMSVMClassifier(lengthscale=given, **length) for way, given in ways.items()}
models = {}
for way, model in {"GridSearchCV": search, **unfitted}.items():
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # in the small setting nothing converges
        model.fit(X, y)
    took = time.perf_counter() - began
    models[way] = model = search.best_estimator_ if model is search else model
    loss = log_loss(y_new, model.predict_proba(X_new), labels=model.classes_)
    error = np.mean(model.predict(X_new) != y_new)
    print(
        f"{way:12s} theta {float(model.lengthscale_):5.1f}  log-loss {loss:.3f}  error {error:.3f}  {took:5.0f} s, with compilation"
    )

# %% [markdown]
# ## Comparison
#
# Bars: the posterior of $\theta$. Dashed curve, right-hand scale: the cross-validated loss with its standard errors, and a
# star at its minimum. Vertical line: the result of `SquaresCV`. Where the curve is flat within its standard errors,
# the grid search takes the lowest point of a plateau by chance; `SquaresCV` averages over its grid. The posterior depends
# on the model alone and lies somewhere on the plateau. All three agree that a very small $\theta$, at which all rows are nearly independent, is bad.

# %%
ax = plots.lengthscale(models["Sampled"])
found = search.cv_results_
error = found["std_test_score"] / np.sqrt(search.n_splits_)
right = ax.twinx()
right.errorbar(grid, -found["mean_test_score"], error, fmt="s--", color="C1", capsize=2)
right.plot(search.best_params_["lengthscale"], -search.best_score_, "k*", markersize=11)
right.set_ylabel("cross-validated log-loss")
best = float(models["SquaresCV"].lengthscale_)
ax.axvline(best, color="black", linestyle="-.", linewidth=1.5)
ax.annotate(
    "least squares ",
    (best, 0.98),
    xycoords=("data", "axes fraction"),
    rotation=90,
    va="top",
    ha="right",
)
plt.show()

# %% [markdown]
# ## The posterior of theta
#
# Sampling usually does not predict better, but it shows the uncertainty of $\theta$. Its chains should look like noise:

# %%
plots.trace(models["Sampled"], "lengthscale")
plt.show()
low, high = np.quantile(models["Sampled"].run_.samples["lengthscale"], (0.05, 0.95))
print(f"90% of the posterior of theta: {low:.1f} to {high:.1f}")

# %% [markdown]
# ## The same for the regularisation
#
# The machine of eq. (2) has a $\gamma$, chosen by cross-validation. In the model $\tau/\sigma^2$ corresponds to it and has a
# posterior, without a grid or folds. The two values need not agree: the machine has no noise and a single function, and another
# likelihood. The plot shows how wide the posterior is.

# %%
machine = MSVMClassifier(lengthscale=best, gamma="cv", grid=Grid(folds=folds)).fit(X, y)
plots.regularization(models["SquaresCV"], gamma=machine.gamma_)
plt.show()

# %% [markdown]
# ## Which one to use
#
# Use the default unless you have a reason. Use `GridSearchCV` if only the predictive loss counts and time does not. Use `Sampled` if you
# need the uncertainty of $\theta$, or if $n$ is small. More: [docs/lengthscale.md](../docs/lengthscale.md).
