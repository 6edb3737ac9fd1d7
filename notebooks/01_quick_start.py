# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Quick start
#
# For someone who knows NumPyro or scikit-learn and wants to see a posterior: fit the wine data,
# check the chains, look at the probabilities of rows held out.

# %%
import arviz as az
import jax
import numpy as np
import numpyro
from numpyro.infer import MCMC
from sklearn.model_selection import train_test_split

from bmsvm import BMSVMGibbs, datasets, kernels
from bmsvm.diagnostics import to_arviz
from bmsvm.inference.predict import class_probabilities, features_at

numpyro.enable_x64()

# %%
X, y = datasets.load_wine(return_X_y=True)
X = (X - X.mean(0)) / X.std(0)
train, test, y_train, y_test = train_test_split(X, y, train_size=120, random_state=0, stratify=y)

# %%
sampler = BMSVMGibbs(lengthscale=3.5, likelihood="normalized")
mcmc = MCMC(sampler, num_warmup=500, num_samples=500, num_chains=4, chain_method="vectorized")
mcmc.run(jax.random.key(0), train, y_train, extra_fields=("accept_prob", "step_size"))

# %% [markdown]
# R-hat near 1 and some hundred effective draws: the chains agree.

# %%
data = to_arviz(mcmc)
az.summary(data, var_names=["noise_variance", "precision", "intercept"])

# %% [markdown]
# Class probabilities of the rows held out, averaged over the posterior.

# %%
problem = sampler.prepare(train, y_train)
features = features_at(kernels.gaussian(3.5), test, train, problem.factor)
probabilities = class_probabilities(jax.random.key(1), mcmc.get_samples(), features, problem)
predictive = np.asarray(probabilities).mean(0)
print("error", np.mean(predictive.argmax(1) != y_test))
predictive[:5].round(3)
