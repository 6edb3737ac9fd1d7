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
# **For whom:** someone who has tuned the width of a Gaussian kernel on a grid, and would like to
# know what else there is.
#
# **What you will see:** the lengthscale $\theta$ of $\exp(-|x - x'|^2 / (2\theta^2))$ by
# cross-validation, by marginal likelihood, and with a posterior of its own; where the three agree,
# and what each costs. At the end the same for the regularisation.

# %%
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from setting import size
from sklearn.metrics import log_loss

from bmsvm import BMSVMClassifier, MSVMClassifier, datasets, plots
from bmsvm.machines import Grid

# %% [markdown]
# ## Data, and three models
#
# Waveform: 21 features, three classes, as many new rows as we like. The lengthscale is in units of
# the standardised features; distances between rows are about $\sqrt{2 \cdot 21} \approx 6.5$.
#
# - `"cv"` fits every value of a grid on every fold, and takes the least log-loss on rows held out.
# - `"marginal-likelihood"` climbs $\log p(y \mid \theta)$, with everything else
#   integrated out. Its gradient is a posterior mean, which the chains deliver as they go along.
# - `"sample"` makes $\theta$ a parameter, uniform on a grid of 64 values whose Gram matrices are
#   factored once.
#
# The classifier's default is a fourth, `"mode-cv"`, which is not in the paper: folds judge modes, not
# posteriors, which takes a second or two, and find $\tau$ along with $\theta$.

# %%
n, m = size(150, 64), size(2000, 200)
X, y = datasets.make_waveform(n + m, seed=1, return_X_y=True)
X, y, X_new, y_new = X[:n], y[:n], X[n:], y[n:]
grid = np.geomspace(1, 40, size(9, 3))
ways = {
    "cv": {
        "lengthscale_options": {
            "grid": grid,
            "folds": size(5, 2),
            "num_warmup": size(200, 30),
            "num_samples": size(150, 30),
        }
    },
    "marginal-likelihood": {},
    "sample": {"lengthscale_grid": size(None, np.geomspace(1, 40, 8)), "num_warmup": size(300, 50)},
}
models = {}
for way, options in ways.items():
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # in the small setting nothing converges
        models[way] = BMSVMClassifier(
            lengthscale=way,
            num_chains=size(4, 2),
            num_samples=size(300, 50),
            random_state=0,
            **options,
        ).fit(X, y)
    took = time.perf_counter() - began
    loss = log_loss(y_new, models[way].predict_proba(X_new), labels=models[way].classes_)
    error = np.mean(models[way].predict(X_new) != y_new)
    print(
        f"{way:20s} theta {float(models[way].lengthscale_):5.1f}  log-loss {loss:.3f}  error {error:.3f}  {took:5.0f} s, compiling included"
    )

# %% [markdown]
# ## All in one picture
#
# Bars: the posterior of $\theta$. The dashed curve, on the right-hand scale: the cross-validated
# loss with its standard errors, and a star at its minimum. The upright line: the maximum of the
# marginal likelihood. Look at the curve first: over how wide a range is it flat within its bars?
# There cross-validation takes the lowest point of a plateau, which is luck; the posterior has to
# decide by the model alone and puts its mass somewhere on it. What all three agree on is that too
# small a $\theta$, where every row is alone, is bad.

# %%
ax = plots.lengthscale(models["sample"], models["cv"].selection_)
best = float(models["marginal-likelihood"].lengthscale_)
ax.axvline(best, color="black", linestyle="-.", linewidth=1.5)
ax.annotate(
    " marginal likelihood",
    (best, 0.02),
    xycoords=("data", "axes fraction"),
    rotation=90,
    va="bottom",
    ha="right",
)
plt.show()

# %% [markdown]
# ## How the maximum was found
#
# Each step is a few sweeps at the current $\theta$, an estimate of the slope of the log evidence
# (below), and a step uphill in $\log \theta$. The steps shrink; the mean of the second half is the
# answer. Look for a path that levels off, and slopes that scatter around zero in that half.

# %%
climb = models["marginal-likelihood"].run_.sampler.lengthscale_selection
figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(7, 5), layout="constrained")
top.plot(climb.path[:, 0], "o-", markersize=3)
top.axhline(best, color="black", linestyle="-.", linewidth=1, label="answer")
top.set(ylabel=r"$\theta$", yscale="log")
top.legend()
bottom.plot(climb.gradients[:, 0], "o", markersize=3)
bottom.axhline(0, color="0.5", linewidth=1)
bottom.set(xlabel="step", ylabel=r"slope of log evidence in $\log \theta$")
plt.show()
print(
    "converged:", climb.converged, f" standard error of log theta: {float(climb.log_error[0]):.3f}"
)

# %% [markdown]
# ## What sampling it adds
#
# Not fitting better, usually, but saying how much $\theta$ could have been otherwise. Its chain
# should look like noise:

# %%
plots.trace(models["sample"], "lengthscale")
plt.show()
low, high = np.quantile(models["sample"].run_.samples["lengthscale"], (0.05, 0.95))
print(f"90% of the posterior of theta: {low:.1f} to {high:.1f}")

# %% [markdown]
# ## The same for the regularisation
#
# The machine of eq. (2) has a $\gamma$, chosen by cross-validation. In the model $\tau/\sigma^2$
# plays its part, and has a posterior: no grid, no folds. The two need not lie together. The machine
# has no noise and one function, the posterior has both noise and all the functions that the data
# allow, and its likelihood is another one; look how wide the posterior is, over which a grid would
# have had to choose.

# %%
machine = MSVMClassifier(lengthscale=best, gamma="cv", grid=Grid(folds=size(5, 2))).fit(X, y)
plots.regularization(models["marginal-likelihood"], gamma=machine.gamma_)
plt.show()

# %% [markdown]
# ## Which one to take
#
# The default, unless you have a reason. `"cv"` if predictive loss is all that counts and time does
# not; `"sample"` if somebody will ask how sure you are of $\theta$, or if $n$ is small. Measured on
# four data sets in [docs/lengthscale.md](../docs/lengthscale.md).
