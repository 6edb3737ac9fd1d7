"""The benchmark of samplers: its density, its cells, which results count, and its table."""

import jax
import jax.numpy as jnp
import numpy as np
import posteriors
import pytest
import samplers
from numpyro.infer.util import log_density as numpyro_log_density

from bmsvm import BMSVMGibbs, run_chains
from bmsvm.models import hierarchical_model

TARGET = "normalized, paper's priors"


@pytest.fixture(scope="module")
def problem():
    with jax.enable_x64(True):
        return posteriors.posterior("wine", 24, posteriors.paper_model("wine"), "normalized")


def test_density_is_that_of_the_numpyro_model(problem):
    """Up to a constant, and the Jacobian of the logarithms."""
    with jax.enable_x64(True):
        points = posteriors.starts(jax.random.key(3), problem, 4)
        own = jax.vmap(lambda at: posteriors.log_density(at, problem))(points)

        def of_numpyro(at):
            noise_variance, precision = jnp.exp(at.logs)
            sites = {
                "noise_variance": noise_variance,
                "precision": precision,
                "white_inside": at.inside,
                "white_intercept": at.intercept,
            }
            joint, _ = numpyro_log_density(hierarchical_model, (problem,), {}, sites)
            return joint + at.logs.sum()

        other = jax.vmap(of_numpyro)(points)
        np.testing.assert_allclose(np.diff(own), np.diff(other), rtol=1e-9)


def test_coordinates_give_back_the_draws_without_spare_rows(problem):
    model = posteriors.paper_model("wine")
    with jax.enable_x64(True):
        padded = posteriors.posterior("wine", 24, model, "normalized", spare_multiple=32)
        run = run_chains(
            BMSVMGibbs(), jax.random.key(0), padded, num_warmup=5, num_samples=3, num_chains=2
        )
        found = posteriors.coordinates_of(dict(run.samples), problem)
        at = jax.tree.map(lambda x: x[1, 2], found)
        columns = np.asarray(posteriors._columns(at, problem))
        scores = run.samples["scores"][1, 2, :24]
        contrast = np.linalg.lstsq(columns, scores, rcond=None)[0]
        np.testing.assert_allclose(columns @ contrast, scores, atol=1e-8)
        np.testing.assert_allclose(contrast @ contrast.T, np.eye(2), atol=1e-8)
        np.testing.assert_allclose(np.exp(at.logs[1]), run.samples["precision"][1, 2])


def tiny(sampler: str) -> dict:
    options = samplers.options_of(
        ["--quick", "--rows", "24", "--ess", "200", "--limit", "3", "--draws", "400"]
    )
    spec = samplers.specification("wine", TARGET, sampler, posteriors.paper_model("wine"), options)
    return {**spec, "num_warmup": 150}


def test_quick_setting_agrees_with_nuts():
    """Means of 23 quantities within 4.5 standard errors: false alarm below 2e-4; seed fixed."""
    records = [samplers.measure(tiny(sampler)) for sampler in ("default", "nuts-64")]
    for record in records:
        assert record["ess"] > 50
        assert record["r_hat"] < 1.1
        assert 1 <= record["gradients"] <= record["lockstep"]
    assert samplers.largest_z(*records) < 4.5
    text = samplers.table(records)
    assert "| wine | default |" in text
    assert "| wine | nuts-64 |" in text


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["chees-32", "microcanonical-32"])
def test_quick_setting_of_blackjax(sampler):
    pytest.importorskip("blackjax")
    record = samplers.measure(tiny(sampler))
    assert record["ess"] > 0
    assert np.isfinite(list(record["means"].values())).all()


def record(sampler: str, mean: float, r_hat: float = 1.0, rate: float = 100.0) -> dict:
    return {
        "data": "wine",
        "rows": None,
        "target": TARGET,
        "sampler": sampler,
        "seed": 0,
        "draws": 10,
        "ess": 10 * rate,
        "worst": "density",
        "seconds": 10.0,
        "wall_seconds": 10.0,
        "compile_seconds": 1.0,
        "warmup_seconds": 1.0,
        "gradients": 2.0,
        "lockstep": 3.0,
        "r_hat": r_hat,
        "means": {"density": mean},
        "errors": {"density": 0.1},
    }


def test_results_count_if_they_converged_and_agree_with_most():
    found = [
        record("default", 0.0),
        record("nuts-64", 0.1),
        record("nuts-32", 0.05),
        record("chees-32", 2.0),
        record("microcanonical-32", 0.0, r_hat=1.03),
    ]
    assert samplers.verdicts(found) == {
        "default": "ok",
        "nuts-64": "ok",
        "nuts-32": "ok",
        "chees-32": "z 13.8",
        "microcanonical-32": "R-hat 1.030",
    }


def test_ratios_are_of_effective_draws_a_second():
    found = [record("default", 0.0, rate=300.0), record("nuts-64", 0.0, rate=100.0)]
    found.append(record("chees-32", 0.0, r_hat=1.5, rate=900.0))
    text = samplers.ratios(found, TARGET)
    assert "| wine | (R-hat 1.500) | 3.00 | 3.00 |" in text
    assert "| geometric mean (data sets) | – | 3.00 (1) | 3.00 (1) |" in text


def test_finished_cells_are_kept(tmp_path, monkeypatch):
    asked = []

    def measured(spec):
        asked.append((spec["data"], spec["sampler"]))
        return record(spec["sampler"], 0.0) | {"data": spec["data"]}

    monkeypatch.setattr(samplers, "in_a_process", measured)
    common = ["--targets", TARGET, "--output", str(tmp_path / "cells.jsonl")]
    samplers.run(samplers.options_of([*common, "--data", "wine", "--samplers", "default"]))
    samplers.run(samplers.options_of([*common, "--data", "wine,glass", "--samplers", "default"]))
    assert asked == [("wine", "default"), ("glass", "default")]
