"""Posterior summaries with Monte Carlo errors, to a file and back, and compared."""

import json
from pathlib import Path

import arviz
import numpy as np

HERE = Path(__file__).parent


def summarize(sites):
    """Moments, quantiles and Monte Carlo errors of sites that lead with (chain, draw)."""
    result = {}
    for name, value in sites.items():
        value = np.asarray(value)
        data = arviz.convert_to_dataset({"mean": value, "square": value**2})
        error = arviz.mcse(data)
        flat = value.reshape(-1, *value.shape[2:])
        result[name] = {
            "mean": flat.mean(0),
            "mean_mcse": error["mean"].values,
            "square": (flat**2).mean(0),
            "square_mcse": error["square"].values,
            "sd": flat.std(0),
            "quantiles": np.quantile(flat, [0.05, 0.5, 0.95], axis=0),
            "rhat": arviz.rhat(data)["mean"].values,
        }
    return result


def write(name, record):
    def plain(value):
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items()}
        if isinstance(value, np.ndarray | np.generic):
            return np.round(value, 6).tolist()
        return value

    (HERE / f"{name}.json").write_text(json.dumps(plain(record), indent=1) + "\n")


def load(name):
    return json.loads((HERE / f"{name}.json").read_text())


def z_scores(one, other):
    """Differences of first and second moments in units of their Monte Carlo errors."""
    z = []
    for site in sorted(one.keys() & other.keys()):
        for moment in ("mean", "square"):
            values = [np.asarray(side[site][moment]) for side in (one, other)]
            errors = [np.asarray(side[site][f"{moment}_mcse"]) for side in (one, other)]
            z.append(((values[0] - values[1]) / np.hypot(*errors)).ravel())
    return np.concatenate(z)
