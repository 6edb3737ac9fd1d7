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
# **For whom:** someone with more rows than in the other notebooks, who wants to estimate time and memory
# before fitting.
#
# **What you will see:** how the time of a fit grows with the number $n$ of training rows; the cost of
# prediction; how the error falls with $n$; the limits of exact inference; and low-rank Gram matrices.

# %%
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np

from bmsvm import BMSVMClassifier, Nystrom, datasets

# Chains are short, because only their cost is measured.
warnings.simplefilter("ignore", UserWarning)

# %% [markdown]
# ## Training cost
#
# The Gram matrix has $n^2$ entries. It is factored once before sampling, $O(n^3)$. After that each step of a trajectory is a
# product with an $n \times n$ matrix, $O(n^2 c)$, and a sweep has tens of such steps. The lengthscale is fixed here, so there is one
# factorisation. (By default it is chosen by cross-validation on at most 512 rows; `model.selection_.num_rows` is the number of
# rows.) `likelihood="normalized"` asks for chains: of more than 1000 rows of three classes the default runs none.
#
# The cell fits waveform for each $n$. The time of the first fit includes compilation. The time of a sweep is measured by
# continuing the chains.

# %%
counts, m = [250, 500, 1000, 2000], 2000  # small: [64, 128], 200
num_warmup, sweeps = 100, 50  # small: 30, 20
X, y = datasets.make_waveform(max(counts) + m, seed=2, return_X_y=True)
X_new, y_new = X[-m:], y[-m:]
first, each, errors, models = [], [], [], []
for n in counts:
    model = BMSVMClassifier(
        likelihood="normalized",
        approximation="exact",
        lengthscale=6.0,
        num_chains=2,
        num_warmup=num_warmup,
        num_samples=sweeps,
        predictive="posterior",
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
# Left: on logarithmic axes a power of $n$ is a straight line whose slope is the exponent; the dashed line has slope 2. Right: the
# error. Where it stops falling, more rows only cost time, and a part of the data is sufficient. The best possible error on these
# data is about 0.14.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.loglog(counts, each, "o-", color="#0072B2", label="a sweep of two chains")
left.loglog(
    counts, each[-1] * (np.array(counts) / counts[-1]) ** 2, "--", color="0.5", label="slope 2"
)
left.set(xlabel="training rows, n", ylabel="seconds")
left.legend()
right.semilogx(counts, errors, "s-", color="#D55E00")
right.axhline(0.14, color="0.5", linestyle=":", linewidth=1)
right.set(xlabel="training rows, n", ylabel="error on new rows")
plt.show()

# %% [markdown]
# ## Prediction cost
#
# New rows are predicted independently of each other, in blocks of fixed size, so that memory is bounded. The prediction of a row
# does not depend on its block, bit for bit. After the first block, which compiles, the time is proportional to the number of
# rows.

# %%
model = models[0]
many = [1_000, 10_000, 50_000]  # small: [500, 2_000]
rows = datasets.make_waveform(max(many), seed=3, return_X_y=True)[0]
model.predict_proba(rows[: many[0]])  # compiles
for count in many:
    began = time.perf_counter()
    chances = model.predict_proba(rows[:count])
    took = time.perf_counter() - began
    print(f"{count:6d} rows in {took:6.2f} s, {1e6 * took / count:6.1f} microseconds per row")
print(
    "the same bits:",
    np.array_equal(model.predict_proba(rows[100:400]), chances[100:400]),
)

# %% [markdown]
# The cost of a row is its kernel with all training rows and a product with the weights of every draw. Fewer draws or fewer training
# rows make it cheaper.
#
# ## Limits of exact inference
#
# Extrapolation from the last point, with $n^2$ for a sweep and $8n^2$ bytes for one matrix:

# %%
for n in (5_000, 20_000, 100_000):
    sweep = each[-1] * (n / counts[-1]) ** 2
    print(
        f"n = {n:6d}: one matrix {8 * n**2 / 1e9:6.1f} GB, 500 sweeps about {500 * sweep / 3600:8.1f} hours"
    )

# %% [markdown]
# Exact inference is practical up to a few thousand rows.
#
# ## Low rank
#
# With `approximation=Nystrom(rank=r)` the functions are determined by $r$ landmarks instead of all rows. A step of a
# trajectory is $O(n r c)$, and the memory of the basis $O(n r)$. Low rank is the default beyond 2000 rows. First the same rows
# as before, where the exact result is known:

# %%
rank = 200  # small: 32
low = BMSVMClassifier(
    likelihood="normalized",
    approximation=Nystrom(rank=rank),
    lengthscale=6.0,
    num_chains=2,
    num_warmup=num_warmup,
    num_samples=sweeps,
    predictive="posterior",
    random_state=0,
)
n = counts[-1]
low.fit(X[:n], y[:n])
so_far = low.run_.seconds
low.fit_more(sweeps)
apart = np.abs(low.predict_proba(X_new) - models[-1].predict_proba(X_new)).mean()
low_sweep = (low.run_.seconds - so_far) / (sweeps * low.run_.thinning)
print(f"a sweep: {1000 * low_sweep:.1f} ms, exact {1000 * each[-1]:.1f} ms")
print(f"class probabilities differ from the exact ones by {apart:.4f} on average")
print(f"error {np.mean(low.predict(X_new) != y_new):.3f}, exact {errors[-1]:.3f}")

# %% [markdown]
# Then more rows than exact inference could use, with the default: the likelihood is `"squared"`, the least-squares SVM, which
# needs no chains. Kernel and lengthscale are chosen from the data.

# %%
n = 20_000  # small: 1200
X, y = datasets.make_waveform(n, seed=4, return_X_y=True)
began = time.perf_counter()
default = BMSVMClassifier(random_state=0).fit(X, y)
print(f"n = {n}: {default.posterior_.problem.likelihood}, {time.perf_counter() - began:.1f} s")
print(f"{default.kernel_} kernel, error {np.mean(default.predict(X_new) != y_new):.3f}")

# %% [markdown]
# Other options:
#
# - **Train on a part of the rows**, with the classes in proportion (`train_test_split(..., stratify=y)`). The plot above shows
#   whether this increases the error.
# - **Fix the lengthscale**, or choose it on a part of the rows and pass the number.
# - **Use a checkpoint** for a long run: `fit(X, y, checkpoint="folder")` stores the chains while they run, and the same call
#   resumes after a crash.
