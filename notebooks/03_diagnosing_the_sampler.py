# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # 3. Diagnosing the sampler
#
# **For whom:** someone who has run chains before, with Stan, PyMC or NumPyro, and wants to check them.
#
# **What you will see:** three samplers of the same posterior, from the one printed in the paper to the
# default; diagnostics of their convergence with ArviZ; and their cost.
#
# | sampler | a sweep |
# |---|---|
# | `Paper` | section 4.1: a Metropolis step for each score given the functions, the functions given the scores, $\tau$ given the functions |
# | `Gibbs` | scores drawn exactly; $\tau$ given the scores, with everything Gaussian integrated out |
# | `HMC` | the default: Hamiltonian Monte Carlo for scores, $\tau$ and $\sigma^2$ together, with the functions integrated out, in coordinates in which the prior is standard normal |

# %%
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np

from bmsvm import HMC, PAPER, BMSVMClassifier, Gibbs, Paper, datasets
from bmsvm.arviz import to_arviz

# %% [markdown]
# ## One posterior, three samplers
#
# The wine data, with the hinge of the paper, its constants and its lengthscale. Each chain makes at most 500 draws, fewer if
# they are enough, and then 500 more, which are timed. The classifier warns if chains have not converged; the warnings are turned
# off here.

# %%
X, y = datasets.load_wine(return_X_y=True)
step, num_chains, num_warmup, draws = 1, 4, 500, 500  # small: 3, 2, 50, 50
X, y = X[::step], y[::step]
models, data, seconds = {}, {}, {}
for sampler in (Paper(thinning=1), Gibbs(), HMC()):
    name = str(sampler)
    model = BMSVMClassifier(
        sampler=sampler,
        likelihood="hinge",
        lengthscale=3.5,
        hyperparameters=PAPER,
        num_chains=num_chains,
        num_warmup=num_warmup,
        num_samples=draws,
        predictive="posterior",
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
        so_far = model.run_.seconds
        model.fit_more(draws)  # already compiled: this is the time of the draws alone
        seconds[name] = model.run_.seconds - so_far
    models[name], data[name] = model, to_arviz(model)

# %% [markdown]
# ## Trace plots
#
# Each line is a chain of $\log \tau$. Chains that mix look like noise and cover the same range. Chains that do not mix
# drift and stay in different places. Such chains say nothing about the posterior, however many draws they have.

# %%
figure, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    for chain in np.log(model.run_.samples["precision"]):
        ax.plot(chain, linewidth=0.7)
    ax.set(title=name, ylabel=r"$\log \tau$")
axes[-1].set(xlabel="draw")
plt.show()

# %% [markdown]
# ## R-hat and effective sample size
#
# `r_hat` compares the variance between chains with that within them. `ess_bulk` is the number of independent draws that
# would be as accurate for the centre of the distribution, `ess_tail` for its tails. Chains of the classifier end when
# `r_hat` is at most 1.05 and sizes are at least 200, which is enough for predictions. For a table of parameters the usual
# limits are 1.01 and 400.

# %%
names = ["noise_variance", "precision"]
for name, each in data.items():
    print(name)
    print(az.summary(each, var_names=names).filter(["mean", "ess_bulk", "ess_tail", "r_hat"]), "\n")

# %% [markdown]
# The means differ: chains that have not converged give wrong answers, and only R-hat and the effective sample size show it.
# [Notebook 2](02_the_paper.ipynb) shows which move the first two samplers lack.
#
# Predictions depend on the class functions. The classifier therefore also checks these at some training rows, and
# keeps the result:

# %%
for name, model in models.items():
    worst = max(model.diagnostics_.values(), key=lambda found: found.r_hat)
    smallest = min(found.ess for found in model.diagnostics_.values())
    print(
        f"{name:8s} largest R-hat {worst.r_hat:.3f}, smallest effective sample size {smallest:.0f}"
    )

# %% [markdown]
# ## Rank plots
#
# The draws of all chains are ranked together. If the chains agree, the ranks of each chain are uniform, and the bars (or
# curves, with ArviZ 1.x) are level. The first plot is the sampler of the paper, the second the default.

# %%
az.plot_rank(data["Paper"], var_names=["precision"])
plt.show()
az.plot_rank(data["HMC"], var_names=["precision"])
plt.show()

# %% [markdown]
# ## Autocorrelation
#
# The correlation between draws that are some sweeps apart. Draws are nearly independent at lags where the curve has
# reached zero.

# %%


def autocorrelation(chains, lags):
    centred = chains - chains.mean()
    return [
        np.mean(centred[:, : chains.shape[1] - k] * centred[:, k:]) / centred.var() for k in lags
    ]


lags = np.arange(min(100, draws // 2))
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for (name, model), line in zip(models.items(), ("-", "--", ":"), strict=True):
    chains = np.log(model.run_.samples["precision"])
    ax.plot(lags, autocorrelation(chains, lags), line, linewidth=2, label=name)
ax.axhline(0, color="0.5", linewidth=1)
ax.set(xlabel="sweeps apart", ylabel=r"correlation of $\log \tau$")
ax.legend()
plt.show()

# %% [markdown]
# ## Cost
#
# A sweep of `HMC` does more work: a trajectory has up to 128 steps. So the samplers are compared by effective draws per
# second, for the quantity that mixes slowest.

# %%
for name, model in models.items():
    smallest = min(found.ess for found in model.diagnostics_.values())
    smallest *= draws / model.run_.num_samples  # of the draws that were timed
    print(
        f"{name:8s} {draws} draws of each chain in {seconds[name]:6.2f} s: {smallest / seconds[name]:8.1f} effective draws per second"
    )

# %% [markdown]
# `make bench` measures this on five data sets, and compares with NumPyro's NUTS on the same density
# ([docs/sampler.md](../docs/sampler.md)).
#
# ## Statistics of the sampler
#
# `sample_stats` has the acceptance probability and the step size. `HMC` tunes the step size to a target acceptance
# probability during warm-up. A value near 0, or exactly 1, would mean that the step is too long or too short.

# %%
stats = data["HMC"]["sample_stats"]
print(
    "acceptance:",
    float(stats["acceptance_rate"].mean()),
    " step:",
    float(stats["step_size"].mean()),
)

# %% [markdown]
# ## If chains do not mix
#
# - `model.fit_more(500)` continues the chains.
# - A larger `num_warmup` helps if R-hat stays high: the chains had not converged at the end of warm-up.
# - `hyperparameters=None` (the default) keeps $\sigma^2$ near 1. With the paper's priors it can become large where classes
#   are well separated.
# - Other sweeps can be composed from `bmsvm.inference.blocks` (`scale`, `collapsed_parameters`, ...):
#   `BMSVMGibbs(sampler=bmsvm.inference.Blocks(sweep=(...)))` is a NumPyro kernel, and `to_arviz` accepts its
#   `MCMC`.
