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
# **For whom:** someone who has run chains before, with Stan, PyMC or NumPyro, and will not believe
# a posterior without seeing them.
#
# **What you will see:** three samplers of one and the same posterior, from the one printed in the
# paper to the default; the signs by which ArviZ tells which of them has arrived; and what the
# difference costs.
#
# | preset | a sweep |
# |---|---|
# | `"paper"` | section 4.1 as printed: a Metropolis step for each score given the functions, the functions given the scores, $\tau$ given the functions |
# | `"gibbs"` | scores drawn exactly; $\tau$ given the scores, with everything Gaussian integrated out |
# | `"default"` | functions integrated out throughout; scores, $\tau$ and $\sigma^2$ moved together by momentum (Hamiltonian Monte Carlo) in coordinates in which the prior is standard normal |

# %%
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
from setting import size

from bmsvm import PAPER, BMSVMClassifier, datasets
from bmsvm.arviz import to_arviz

# %% [markdown]
# ## One posterior, three samplers
#
# The wine data, the hinge of the paper, its constants and its lengthscale. All get the same number
# of sweeps. The classifier warns where chains have not converged; here we know, and look for
# ourselves.

# %%
X, y = datasets.load_wine(return_X_y=True)
X, y = X[:: size(1, 2)], y[:: size(1, 2)]
X, y = X[: size(178, 64)], y[: size(178, 64)]
draws = size(500, 50)
models, data, seconds = {}, {}, {}
for preset in ("paper", "gibbs", "default"):
    model = BMSVMClassifier(
        preset=preset,
        likelihood="hinge",
        lengthscale=3.5,
        hyperparameters=PAPER,
        num_chains=size(4, 2),
        num_warmup=size(500, 50),
        num_samples=draws,
        calibration=None,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
        so_far = model.run_.seconds
        model.fit_more(draws)  # compiled by now: this is the time of the draws alone
        seconds[preset] = model.run_.seconds - so_far
    models[preset], data[preset] = model, to_arviz(model)

# %% [markdown]
# ## Look at the chains
#
# Each line is a chain of $\log \tau$. Where a chain has mixed it looks like noise, and all of them
# cover the same heights. Where it has not it wanders, and the chains stand in different places:
# such a picture says nothing about the posterior yet, however many draws are in it.

# %%
figure, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True, sharey=True, layout="constrained")
for ax, (preset, model) in zip(axes, models.items(), strict=True):
    for chain in np.log(model.run_.samples["precision"]):
        ax.plot(chain, linewidth=0.7)
    ax.set(title=f'preset="{preset}"', ylabel=r"$\log \tau$")
axes[-1].set(xlabel="draw")
plt.show()

# %% [markdown]
# ## The numbers
#
# `r_hat` compares the spread between chains with that within them: 1 where they agree, and above
# 1.01 where one should not believe them. `ess_bulk` is how many independent draws the chains are
# worth for the middle of the distribution, `ess_tail` for its ends; below 400 neither says much.

# %%
names = ["noise_variance", "precision"]
for preset, each in data.items():
    print(preset)
    print(az.summary(each, var_names=names).filter(["mean", "ess_bulk", "ess_tail", "r_hat"]), "\n")

# %% [markdown]
# The parameters are not what predictions are made of. The classifier also watches the class
# functions at some training rows, and keeps the result:

# %%
for preset, model in models.items():
    worst = max(model.diagnostics_.values(), key=lambda found: found.r_hat)
    fewest = min(found.ess for found in model.diagnostics_.values())
    print(f"{preset:8s} worst R-hat {worst.r_hat:.3f}, fewest effective draws {fewest:.0f}")

# %% [markdown]
# ## Ranks
#
# Put the draws of all chains in order and count, for each chain, where its draws stand. If the
# chains agree every rank is as likely in one as in another, and the bars (or curves, with ArviZ
# 1.x) are level. First the sampler of the paper, then the default: slopes and hollows are chains
# that have been in different places.

# %%
az.plot_rank(data["paper"], var_names=["precision"])
plt.show()
az.plot_rank(data["default"], var_names=["precision"])
plt.show()

# %% [markdown]
# ## What a draw remembers
#
# The correlation between draws some sweeps apart. A sampler is done with the past when its curve
# reaches zero.

# %%


def autocorrelation(chains, lags):
    centred = chains - chains.mean()
    return [
        np.mean(centred[:, : chains.shape[1] - k] * centred[:, k:]) / centred.var() for k in lags
    ]


lags = np.arange(size(100, 20))
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for (preset, model), line in zip(models.items(), ("-", "--", ":"), strict=True):
    chains = np.log(model.run_.samples["precision"])
    ax.plot(lags, autocorrelation(chains, lags), line, linewidth=2, label=preset)
ax.axhline(0, color="0.5", linewidth=1)
ax.set(xlabel="sweeps apart", ylabel=r"correlation of $\log \tau$")
ax.legend()
plt.show()

# %% [markdown]
# ## What it costs
#
# A sweep of the default does more work: up to a hundred steps of a trajectory. So count effective
# draws by the second, not by the sweep, and of the slowest quantity that is watched.

# %%
for preset, model in models.items():
    fewest = min(found.ess for found in model.diagnostics_.values()) / 2  # of half the draws
    print(
        f"{preset:8s} {draws} draws a chain in {seconds[preset]:6.2f} s: {fewest / seconds[preset]:8.1f} effective draws a second"
    )

# %% [markdown]
# `make bench` measures this with care, on five data sets and against NumPyro's NUTS on the same
# density ([docs/sampler.md](../docs/sampler.md)).
#
# ## What the sampler says of itself
#
# `sample_stats` has the acceptance of every move that can be refused, and the size of its steps.
# The default aims at an acceptance of its own while it warms up; one near 0 or exactly 1 would be a
# sign of a step that is too long or too short.

# %%
stats = data["default"]["sample_stats"]
print(
    "acceptance:",
    float(stats["acceptance_rate"].mean()),
    " step:",
    float(stats["step_size"].mean()),
)

# %% [markdown]
# ## If your chains look like the first picture
#
# - `model.fit_more(500)` makes more draws, from where the chains stand.
# - A larger `num_warmup` helps if R-hat stays high: the chains had not arrived when counting began.
# - `hyperparameters=None` (the default) keeps $\sigma^2$ near 1. With the paper's priors it can
#   wander far where classes are well separated.
# - The blocks of `bmsvm.inference.blocks` (`interweave`, `scale`, `collapsed_parameters`, ...) can
#   be put together otherwise: `BMSVMGibbs(blocks=...)` is a NumPyro kernel, and `to_arviz` takes
#   its `MCMC`.
