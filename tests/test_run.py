"""The chain driver: NumPyro's draws, continued and interrupted without a trace, compiled once."""

import sys

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC

from bmsvm import (
    HMC,
    PAPER,
    BMSVMGibbs,
    Hyperparameters,
    ModeCV,
    Sampled,
    _progress,
    prepare,
    run_chains,
)
from bmsvm.inference import run as runner
from bmsvm.inference.run import start_chains
from bmsvm.inference.state import INFO, advance_chains
from bmsvm.models import coefficients

RNG = np.random.default_rng(0)
Y = np.arange(14) % 3
X = RNG.normal(size=(14, 2)) + Y[:, None]
KERNEL = BMSVMGibbs(lengthscale=2.0)
SETTINGS = {"num_warmup": 30, "num_chains": 2}


def run(num_samples=60, seed=0, y=Y, kernel=KERNEL, **settings):
    key = jax.random.key(seed)
    return run_chains(kernel, key, X, y, num_samples=num_samples, **{**SETTINGS, **settings})


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_draws_are_those_of_numpyro(likelihood):
    kernel = BMSVMGibbs(lengthscale=2.0, likelihood=likelihood)
    mcmc = MCMC(
        kernel,
        num_warmup=30,
        num_samples=20,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), X, Y)
    ours = run(20, kernel=kernel).samples
    theirs = mcmc.get_samples(group_by_chain=True)
    assert ours.keys() - theirs.keys() == set(INFO)
    for name in theirs:  # two programs round differently, and trajectories remember it
        np.testing.assert_allclose(ours[name][:, :5], theirs[name][:, :5], rtol=1e-4, atol=1e-6)


def test_the_steps_of_the_driver_make_its_draws():
    problem = KERNEL.prepare(X, Y)
    algorithm = KERNEL.algorithm(problem)
    state = start_chains(KERNEL, jax.random.key(0), problem, num_chains=2, num_warmup=30)
    whole = run(60)
    sites = tuple(whole.samples)
    for count in (25, 5):
        state, _ = advance_chains(state, algorithm, count, 1, sites)
    parts = []
    for count in (25, 25, 10):
        state, part = advance_chains(state, algorithm, count, 1, sites)
        parts.append(part)
    joined = {name: np.concatenate([part[name] for part in parts]).swapaxes(0, 1) for name in sites}
    assert_same(joined, whole.samples)
    assert int(state.i) == int(whole.state.i) == 90


@pytest.mark.parametrize("thinning", [1, 3])
def test_continuing_is_having_run_longer(thinning):
    whole = run(75, thinning=thinning)
    parts = run(10, thinning=thinning).more(1).more(64)
    assert whole.num_samples == parts.num_samples == 75
    assert not parts.interrupted
    assert_same(whole.samples, parts.samples)


def test_thinning_skips_sweeps():
    """Whether it is an argument, or an option of the sampler."""
    expected = {name: draws[:, 2::3] for name, draws in run(60).samples.items()}
    assert_same(expected, run(20, thinning=3).samples)
    thinned = BMSVMGibbs(lengthscale=2.0, sampler=HMC(thinning=3))
    assert_same(expected, run(20, kernel=thinned).samples)


def test_a_second_fit_of_the_same_shape_does_not_compile():
    """Not even for other labels, another theta, a shorter warm-up, and thinned draws."""
    durations = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: durations.append(event)
    )

    def compiled():
        return sum("backend_compile" in event for event in durations)

    run(111, num_warmup=57)
    before = compiled()
    other = BMSVMGibbs(lengthscale=0.7, sampler=HMC(thinning=2))
    run(111, seed=1, y=np.roll(Y, 1), kernel=other, num_warmup=7)
    assert compiled() == before
    jax.jit(lambda x: x + 41.0)(1.0)
    assert compiled() > before  # compilations are seen


def test_only_what_is_asked_for_is_kept():
    kept = run(5, collect=["weights", "precision", "accept_prob", "precision"]).samples
    assert list(kept) == ["weights", "precision", "accept_prob"]
    assert kept["precision"].shape == (2, 5)
    problem = prepare(X, Y, lengthscale=2.0)
    assert coefficients(jnp.asarray(kept["weights"][0, -1]), problem).shape == (14, 3)
    assert np.all((kept["accept_prob"] >= 0) & (kept["accept_prob"] <= 1))


def interrupt_at(monkeypatch, call):
    calls = iter(range(1000))

    def interrupted(*args, **kwargs):
        if next(calls) == call:
            raise KeyboardInterrupt
        return advance_chains(*args, **kwargs)

    monkeypatch.setattr(runner, "advance_chains", interrupted)


def test_an_interruption_keeps_finished_draws(monkeypatch):
    whole = run(130)
    interrupt_at(monkeypatch, 2 + 4)  # two chunks of warm-up, four of draws
    with pytest.warns(UserWarning, match="100 of 130 draws were made; call more"):
        part = run(130)
    assert part.interrupted
    assert part.num_samples == 100
    assert_same(part.more(30).samples, whole.samples)


@pytest.fixture
def terminal(monkeypatch):
    """Show progress bars at once, as in a terminal."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(_progress, "DELAY", 0.0)


def test_an_interruption_between_chunks_keeps_them_too(monkeypatch, terminal):
    """Ctrl-C while progress is shown, after two chunks of warm-up and four of draws."""
    whole, shown = run(130), iter(range(1000))

    def interrupted(self, state):
        if next(shown) == 5:
            raise KeyboardInterrupt
        return ""

    with monkeypatch.context() as patch:
        patch.setattr(BMSVMGibbs, "get_diagnostics_str", interrupted)
        with pytest.warns(UserWarning, match="100 of 130 draws were made; call more"):
            part = run(130)
    assert_same(part.more(30).samples, whole.samples)


def test_progress_is_shown_in_a_terminal_only(capsys, monkeypatch):
    run(60)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    run(60)
    shown = capsys.readouterr().err
    for part in ("warm-up", "sample", "acc. prob="):
        assert part in shown


def test_progress_is_turned_off_by_the_environment(monkeypatch, terminal):
    for value, off in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("TQDM_DISABLE", value)
        with _progress.progress(3, "sample") as bar:
            assert bar.disable is off


def test_data_are_prepared_in_the_precision_of_the_moment():
    with jax.enable_x64(False):
        assert KERNEL.prepare(X, Y).factor.basis.dtype == np.float32
    assert KERNEL.prepare(X, Y).factor.basis.dtype == np.float64


@pytest.mark.parametrize(("then", "now"), [("float32", "float64"), ("float64", "float32")])
@pytest.mark.parametrize("stored", [False, True])
def test_a_problem_of_another_precision_is_refused(then, now, stored, tmp_path):
    priors = Hyperparameters(intercept_precision=1)  # an int has no precision of its own
    with jax.enable_x64(then == "float64"):
        problem = prepare(X, Y, lengthscale=2.0, hyperparameters=priors)
        store = tmp_path / "chains" if stored else None
        chains = run_chains(
            BMSVMGibbs(), jax.random.key(0), problem, num_samples=2, num_warmup=2, store=store
        )
    said = f"prepared in {then}, and JAX is now in {now}"
    with jax.enable_x64(now == "float64"):
        with pytest.raises(ValueError, match=said):
            run_chains(BMSVMGibbs(), jax.random.key(0), problem)
        with pytest.raises(ValueError, match=said):
            chains.more(2)


def test_a_table_is_of_any_precision():
    problem = prepare(X, Y, lengthscale=2.0, likelihood="squared")
    with jax.enable_x64(False):
        chains = run_chains(BMSVMGibbs(sampler="table"), jax.random.key(0), problem, num_samples=2)
        assert chains.more(2).num_samples == 4


@pytest.mark.parametrize(
    "setting",
    [
        {"kernel": "matern32"},
        {"lengthscale": 7.0},
        {"lengthscale": "sample"},
        {"likelihood": "hinge"},
        {"coupling": "independent"},
        {"hyperparameters": PAPER},
    ],
)
def test_settings_beside_a_prepared_problem_are_refused(setting):
    problem, kernel = prepare(X, Y, lengthscale=2.0), BMSVMGibbs(**setting)
    said = rf"{next(iter(setting))} must be .* sample it with BMSVMGibbs\(sampler=...\); got"
    with pytest.raises(ValueError, match=said):
        run_chains(kernel, jax.random.key(0), problem)
    with pytest.raises(ValueError, match=said):
        MCMC(kernel, num_warmup=1, num_samples=1).run(jax.random.key(0), problem)
    with pytest.raises(ValueError, match=said):
        MCMC(kernel, num_warmup=1, num_samples=1).run(jax.random.key(0), X=problem)


def test_another_kernel_beside_a_problem_that_samples_theta_is_refused():
    grid = Sampled(grid=[1.0, 2.0])
    problem = prepare(X, Y, lengthscale=grid)
    kernel = BMSVMGibbs("matern32", lengthscale=grid)
    with pytest.raises(ValueError, match=r"^kernel must be given to bmsvm.prepare"):
        run_chains(kernel, jax.random.key(0), problem)


@pytest.mark.parametrize(
    "given",
    [{"y": Y}, {"row_weights": np.ones(14)}, {"spare_rows": 2}],
    ids=["y", "row_weights", "spare_rows"],
)
def test_data_beside_a_prepared_problem_are_refused(given):
    problem = prepare(X, Y, lengthscale=2.0)
    said = f"^{next(iter(given))} must not be given with a prepared problem"
    with pytest.raises(ValueError, match=said):
        MCMC(BMSVMGibbs(), num_warmup=1, num_samples=1).run(jax.random.key(0), problem, **given)
    if "y" in given:
        with pytest.raises(ValueError, match=said):
            run_chains(BMSVMGibbs(), jax.random.key(0), problem, **given)


@pytest.mark.parametrize("method", ["sequential", "vectorized", jax.vmap])
def test_the_printed_ratio_refuses_repeated_rows(method):
    kernel = BMSVMGibbs.paper(printed_ratio=True, lengthscale=Sampled(grid=[1.0, 2.0]))
    rows, labels = X[[0, *range(14)]], Y[[0, *range(14)]]
    mcmc = MCMC(
        kernel, num_warmup=1, num_samples=1, num_chains=2, chain_method=method, progress_bar=False
    )
    with pytest.raises(ValueError, match=r"^printed_ratio .*rank is 14 with 15 rows"):
        mcmc.run(jax.random.key(0), rows, labels)
    with pytest.raises(ValueError, match=r"^printed_ratio .*rank is 14 with 15 rows"):
        run_chains(kernel, jax.random.key(0), rows, labels)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"likelihood": "softmax"}, "likelihood must be one of"),
        ({"coupling": "none"}, "coupling must be one of"),
        ({"lengthscale": "auto"}, r"got 'auto': bmsvm.ModeCV\(\).select\(X, y\) chooses one"),
        ({"lengthscale": ModeCV()}, r"got ModeCV.*: bmsvm.ModeCV\(\).select\(X, y\) chooses one"),
    ],
)
def test_a_sampler_checks_its_settings_at_once(settings, said):
    with pytest.raises(ValueError, match=said):
        BMSVMGibbs(**settings)


@pytest.mark.parametrize("call", [0, 1, 2])
def test_an_interruption_before_the_first_draws_is_passed_on(monkeypatch, call):
    interrupt_at(monkeypatch, call)
    with pytest.raises(KeyboardInterrupt):
        run(130)


def test_an_interrupted_continuation_keeps_what_there_was(monkeypatch):
    first = run(10)
    interrupt_at(monkeypatch, 0)
    with pytest.warns(UserWarning, match="0 of 5 draws"):
        same = first.more(5)
    assert same.interrupted
    assert_same(same.samples, first.samples)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_samples": 0}, "num_samples must be an integer of at least 1; got 0"),
        ({"num_warmup": -1}, "num_warmup must be an integer of at least 0; got -1"),
        ({"num_chains": 2.0}, "num_chains must be an integer of at least 1; got 2.0"),
        ({"thinning": True}, "thinning must be an integer of at least 1; got True"),
        ({"collect": ["z"]}, "collect must be one of .*'scores', .*; got 'z'"),
        ({"collect": []}, "collect must name a site"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        run(**{"num_samples": 5, **settings})
