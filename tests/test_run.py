"""The runner: NumPyro's draws, continued and interrupted without a trace, compiled once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC

from bmsvm import BMSVMGibbs, prepare, run_chains
from bmsvm.inference import programs
from bmsvm.inference import run as runner
from bmsvm.models import coefficients

RNG = np.random.default_rng(0)
Y = np.arange(14) % 3
X = RNG.normal(size=(14, 2)) + Y[:, None]
SETTINGS = {"num_warmup": 30, "num_chains": 2, "progress_bar": False}


def run(num_samples=60, seed=0, y=Y, sampler=None, **settings):
    sampler = sampler or BMSVMGibbs(lengthscale=2.0)
    key = jax.random.key(seed)
    return run_chains(sampler, key, X, y, num_samples=num_samples, **{**SETTINGS, **settings})


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_draws_are_those_of_numpyro(likelihood):
    sampler = BMSVMGibbs(lengthscale=2.0, likelihood=likelihood)
    mcmc = MCMC(
        sampler,
        num_warmup=30,
        num_samples=20,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), X, Y)
    ours = run(20, sampler=sampler).samples
    theirs = mcmc.get_samples(group_by_chain=True)
    assert ours.keys() == theirs.keys()
    for name in ours:  # two programs round differently, and trajectories remember it
        np.testing.assert_allclose(ours[name][:, :5], theirs[name][:, :5], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("thinning", [1, 3])
def test_continuing_is_having_run_longer(thinning):
    whole = run(75, thinning=thinning)
    parts = run(10, thinning=thinning).more(1, progress_bar=False).more(64, progress_bar=False)
    assert whole.num_samples == parts.num_samples == 75
    assert not parts.interrupted
    assert_same(whole.samples, parts.samples)


def test_thinning_skips_sweeps():
    assert_same({k: v[:, 2::3] for k, v in run(60).samples.items()}, run(20, thinning=3).samples)


def test_a_second_fit_of_the_same_shape_does_not_compile():
    run()
    compiled = runner._advance._cache_size()
    run(111, seed=1, y=np.roll(Y, 1), sampler=BMSVMGibbs(lengthscale=0.7), num_warmup=7, thinning=2)
    assert runner._advance._cache_size() == compiled


def test_programs_of_many_shapes_are_forgotten(monkeypatch):
    cleared = []
    monkeypatch.setattr(programs, "SHAPES", 2)
    monkeypatch.setattr(programs, "_seen", set())
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(True))
    for n, clearings in ((14, 0), (13, 0), (14, 0), (12, 1), (13, 1), (12, 1), (14, 2)):
        programs.forget_old_programs(prepare(X[:n], Y[:n], lengthscale=2.0))
        assert len(cleared) == clearings


def test_memory_is_given_back_where_programs_were_compiled(monkeypatch):
    """The C library keeps what compiling took, for each thread, unless it is asked after it."""
    events, advance = [], runner._advance

    def noted(*args, **kwargs):
        events.append("ran")
        return advance(*args, **kwargs)

    monkeypatch.setattr(programs, "_seen", set())
    for module in (programs, runner):
        monkeypatch.setattr(module, "give_back_memory", lambda: events.append("given back"))
    monkeypatch.setattr(runner, "_advance", noted)
    run(60)
    assert events == ["given back", "ran", "ran", "ran", "given back"]
    events.clear()
    run(60, seed=1, y=np.roll(Y, 1))
    assert events == ["ran"] * 3


def test_only_what_is_asked_for_is_kept():
    kept = run(5, collect=["weights", "precision", "accept_prob", "precision"]).samples
    assert list(kept) == ["weights", "precision", "accept_prob"]
    assert kept["precision"].shape == (2, 5)
    problem = prepare(X, Y, lengthscale=2.0)
    assert coefficients(jnp.asarray(kept["weights"][0, -1]), problem).shape == (14, 3)
    assert np.all((kept["accept_prob"] >= 0) & (kept["accept_prob"] <= 1))


def interrupt_at(monkeypatch, call):
    calls = iter(range(1000))
    advance = runner._advance

    def interrupted(*args, **kwargs):
        if next(calls) == call:
            raise KeyboardInterrupt
        return advance(*args, **kwargs)

    monkeypatch.setattr(runner, "_advance", interrupted)


def test_an_interruption_keeps_finished_draws(monkeypatch):
    whole = run(130)
    interrupt_at(monkeypatch, 1 + 2)  # one piece of warm-up, two of draws
    with pytest.warns(UserWarning, match="100 of 130 draws were made; call more"):
        part = run(130)
    assert part.interrupted
    assert part.num_samples == 100
    assert_same(part.more(30, progress_bar=False).samples, whole.samples)


def test_an_interruption_between_pieces_keeps_them_too(monkeypatch):
    """Ctrl-C while progress is shown, after one piece of warm-up and two of draws."""
    whole, shown = run(130), iter(range(1000))

    def interrupted(self, state):
        if next(shown) == 2:
            raise KeyboardInterrupt
        return ""

    with monkeypatch.context() as patch:
        patch.setattr(BMSVMGibbs, "get_diagnostics_str", interrupted)
        with pytest.warns(UserWarning, match="100 of 130 draws were made; call more"):
            part = run(130, progress_bar=True)
    assert_same(part.more(30, progress_bar=False).samples, whole.samples)


def test_a_sampler_prepares_again_in_another_precision():
    sampler = BMSVMGibbs()
    with jax.enable_x64(False):
        assert sampler.prepare(X, Y).factor.basis.dtype == np.float32
    assert sampler.prepare(X, Y).factor.basis.dtype == np.float64


@pytest.mark.parametrize("call", [0, 1])
def test_an_interruption_before_the_first_draws_is_passed_on(monkeypatch, call):
    interrupt_at(monkeypatch, call)
    with pytest.raises(KeyboardInterrupt):
        run(130)


def test_an_interrupted_continuation_keeps_what_there_was(monkeypatch):
    first = run(10)
    interrupt_at(monkeypatch, 0)
    with pytest.warns(UserWarning, match="0 of 5 draws"):
        same = first.more(5, progress_bar=False)
    assert same.interrupted
    assert_same(same.samples, first.samples)


def test_progress_is_shown(capsys):
    run(60, progress_bar=True)
    shown = capsys.readouterr().err
    assert "warm-up" in shown
    assert "sample" in shown
    assert "acc. z" in shown


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_samples": 0}, "num_samples must be an integer of at least 1; got 0"),
        ({"num_warmup": -1}, "num_warmup must be an integer of at least 0; got -1"),
        ({"num_chains": 2.0}, "num_chains must be an integer of at least 1; got 2.0"),
        ({"thinning": True}, "thinning must be an integer of at least 1; got True"),
        ({"collect": ["z"]}, "collect must be one of 'scores', .*; got 'z'"),
        ({"collect": []}, "collect must name a site"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        run(**{"num_samples": 5, **settings})
