# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # 7. Large data
#
# **For whom:** someone with more rows than the other notebooks have, who wants to know before
# fitting how long it will take and what will break first.
#
# **What you will see:** how the time of a fit grows with the rows $n$ to learn from; that the
# number of rows to *predict* hardly matters; what more rows buy; where exact inference ends; and
# what a Gram matrix of low rank does beyond.

# %%
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from setting import size

from bmsvm import BMSVMClassifier, datasets

warnings.simplefilter(
    "ignore", UserWarning
)  # chains are short on purpose: only their cost is asked

# %% [markdown]
# ## Learning: what grows with $n$
#
# The Gram matrix has $n^2$ entries. Before sampling it is factored once, $O(n^3)$; after that each
# step of a trajectory is a product with an $n \times n$ matrix, $O(n^2 c)$, and a sweep is tens of
# such steps. The lengthscale is fixed here, so that one factorisation is all. (By default it is
# found by folds, eight factorisations, on 1024 rows at most: `lengthscale_rows_` says on how many.)
#
# Below: waveform, a fit for each $n$. *Set-up and warm-up* includes compiling, once for each shape;
# *a sweep* is timed by continuing the chains.

# %%
counts = size([250, 500, 1000, 2000], [64, 128])
m = size(2000, 200)
X, y = datasets.make_waveform(max(counts) + m, seed=2, return_X_y=True)
X_new, y_new = X[-m:], y[-m:]
sweeps = size(50, 20)
first, each, errors, models = [], [], [], []
for n in counts:
    model = BMSVMClassifier(
        features="exact",
        lengthscale=6.0,
        num_chains=2,
        num_warmup=size(100, 30),
        num_samples=sweeps,
        calibration=None,
        random_state=0,
    )
    began = time.perf_counter()
    model.fit(X[:n], y[:n])
    first.append(time.perf_counter() - began)
    so_far = model.run_.seconds
    model.fit_more(sweeps)
    each.append((model.run_.seconds - so_far) / sweeps)
    errors.append(np.mean(model.predict(X_new) != y_new))
    models.append(model)
    print(
        f"n = {n:5d}: Gram matrix {8 * n**2 / 1e6:6.1f} MB, first {first[-1]:6.1f} s, "
        f"a sweep {1000 * each[-1]:7.1f} ms, error {errors[-1]:.3f}"
    )

# %% [markdown]
# On double logarithmic axes a power of $n$ is a straight line, and its slope the power. Left:
# compare with the dashed line of slope 2; small problems lie above it, as they do not fill the
# processor. Right: the error. Look where it stops falling: rows beyond that point cost time and buy
# nothing, and a part of the data does as well. The best error that anybody can reach on these data
# is about 0.14.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.loglog(counts, each, "o-", color="#0072B2", label="a sweep of two chains")
left.loglog(
    counts, each[-1] * (np.array(counts) / counts[-1]) ** 2, "--", color="0.5", label="slope 2"
)
left.set(xlabel="rows to learn from, n", ylabel="seconds")
left.legend()
right.semilogx(counts, errors, "s-", color="#D55E00")
right.axhline(0.14, color="0.5", linestyle=":", linewidth=1)
right.set(xlabel="rows to learn from, n", ylabel="error on new rows")
plt.show()

# %% [markdown]
# ## Predicting: rows in parts
#
# New rows do not see each other. They are predicted in parts of a size that keeps memory bounded,
# and the answer for a row does not depend on the part that it is in, to the last bit. So time is
# proportional to the number of rows, after a first part that compiles.

# %%
model = models[0]
many = size([1_000, 10_000, 50_000], [500, 2_000])
rows = datasets.make_waveform(max(many), seed=3, return_X_y=True)[0]
model.predict_proba(rows[: many[0]])  # compiles
for count in many:
    began = time.perf_counter()
    chances = model.predict_proba(rows[:count])
    took = time.perf_counter() - began
    print(f"{count:6d} rows in {took:6.2f} s, {1e6 * took / count:6.1f} microseconds a row")
print(
    "the same to the last bit:",
    np.array_equal(model.predict_proba(rows[100:400]), chances[100:400]),
)

# %% [markdown]
# A row costs its kernel with all training rows and a product with the weights of every draw: fewer
# draws or fewer training rows make it cheaper. `num_samples=100` is often enough for probabilities,
# if the chains have converged.
#
# ## Where it ends
#
# Extrapolate from the last point, with $n^2$ for a sweep and $8n^2$ bytes for one matrix:

# %%
for n in (5_000, 20_000, 100_000):
    sweep = each[-1] * (n / counts[-1]) ** 2
    print(
        f"n = {n:6d}: one matrix {8 * n**2 / 1e9:6.1f} GB, 500 sweeps about {500 * sweep / 3600:8.1f} hours"
    )

# %% [markdown]
# At a few thousand rows patience ends, soon after it memory.
#
# ## Low rank
#
# With `features="nystrom"` the functions live on $r$ landmarks instead of on all rows: a sweep is
# $O(n r c)$, and memory $O(n r)$. The scores are integrated out, so that a sweep moves $r$
# coordinates for each column and not $n$. Unless something is said, the classifier does so by
# itself beyond 2000 rows. First the same rows as before, where the exact answer is known:

# %%
low = BMSVMClassifier(
    features="nystrom",
    rank=size(200, 32),
    lengthscale=6.0,
    num_chains=2,
    num_warmup=size(100, 30),
    num_samples=sweeps,
    calibration=None,
    random_state=0,
)
n = counts[-1]
low.fit(X[:n], y[:n])
so_far = low.run_.seconds
low.fit_more(sweeps)
apart = np.abs(low.predict_proba(X_new) - models[-1].predict_proba(X_new)).mean()
print(f"a sweep: {1000 * (low.run_.seconds - so_far) / sweeps:.1f} ms, exact {1000 * each[-1]:.1f}")
print(f"class probabilities differ from the exact ones by {apart:.4f} on average")
print(f"error {np.mean(low.predict(X_new) != y_new):.3f}, exact {errors[-1]:.3f}")

# %% [markdown]
# Then as many rows as were out of reach above.

# %%
n = size(20_000, 400)
X, y = datasets.make_waveform(n, seed=4, return_X_y=True)
began = time.perf_counter()
low.fit(X, y)
print(f"n = {n}: fitted in {time.perf_counter() - began:.1f} s")
print(f"error {np.mean(low.predict(X_new) != y_new):.3f}")

# %% [markdown]
# What else helps:
#
# - **Learn from a part.** The picture above says whether that costs anything. Take rows with the
#   classes in proportion (`train_test_split(..., stratify=y)`), and predict all.
# - **Fix the lengthscale**, or find it on a part and pass the number.
# - **Do not lose a long run**: `fit(X, y, checkpoint="folder")` keeps the chains while they run,
#   and the same call goes on after a crash.
