"""Calibration of class probabilities by leave-one-out.

If functions of the posterior are rougher than the truth, averaged probabilities are less confident
than the data allow, and draws scatter more than they should. Both are corrected in the draws, from
which all predictions are computed. With ``p^s`` the probabilities of draw s at a row, p their mean
over the draws, and l the log probabilities of least squares
(:mod:`bmsvm.prediction.squares`),

    u^s = a [(1 - w h) log p + w h l + g (log p^s - mean_s log p^s)]
    q^s = (1 - pi) [(1 - eps) softmax(u^s) + eps / c] + pi r^s.

The power a sharpens or flattens probabilities. The share w is the weight of least squares in the
logarithmic pool (0 without them). The spread g scales the distances of draws from their centre. The
three maximise the log score of the training rows, each predicted without its own label by the mean
of its ``q^s`` (:mod:`bmsvm.prediction.leave_one_out`), under priors, those of a and w weak.

h is 1 at rows where draws disagree as they usually do, and falls to 0 where they disagree entirely
(:func:`reach`). Least squares have no doubt of their own, however far they extrapolate.

eps is the probability that a label is drawn uniformly. Half such a row is added to the n rows of
leave-one-out, as in the estimator of Krichevsky and Trofimov: ``eps = 0.5 / (n + 0.5)``.

pi is the posterior probability that labels have nothing to do with the features
(:func:`unrelated`). They are then drawn by the frequencies r of the classes, ``r^s ~
Dirichlet(counts + 1/2)``. Where features say anything of the labels, pi is nearly zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special

CHANCE_ROWS = 0.5
"""Number of added rows whose label is drawn uniformly."""

LOG_POWER = (0.0, 3.0)
"""Mean of log a, and standard deviation below it: labels may be uninformative."""

SHARPENED = 1.0
"""Standard deviation above the mean: few rows are little evidence for probabilities near one."""

LOGIT_SHARE = (0.0, 1.5)
"""Mean and standard deviation of log w/(1 - w)."""

LOG_SPREAD = (0.1, 0.2)
"""Centre and scale of log g, which has a Cauchy distribution. Labels say little about g on most
data, and draws are then spread a tenth more than those of the posterior, which does not know how
uncertain the choices by the same labels are (relevance, kernel, theta, tau, a, w). Where classes
are far apart labels can say that draws scatter too much; the tails of a Cauchy distribution leave
that to them."""

SPREAD_BY_POWER = 0.5
"""Part of log a that is added to the centre of log g if a is below 1: if the posterior is too
confident, its draws are also too far apart."""

STARTS = ((0.0, 0.0, LOG_SPREAD[0]), (-1.0, 0.0, -2.5))
"""Values of log a, logit w and log g from which the best is sought: there can be a local minimum
near each, and the centre of log g has a kink at log a = 0."""

BOUNDS = ((-4.0, 4.0), (-6.0, 6.0), (-5.0, 2.0))
"""Bounds of log a, logit w and log g."""

FITTED = 6.0
"""How much the score of the best calibration exceeds what it will be at new rows, in nats, if the
labels have nothing to do with the features: one for each number that was chosen by the same labels
(kernel, theta, tau, a, w, g), as in Akaike's criterion."""

USUAL = 0.95
"""Quantile of the disagreement of draws at held-out rows beyond which it is not usual."""

GOLDEN = (5**0.5 - 1) / 2
"""Share of an interval that a golden section keeps."""

SECTIONS = 24
"""Sections that :func:`best_power` makes: log a is then known to 1e-4."""

TINY = float(np.finfo(np.float32).tiny)


class Calibration(NamedTuple):
    """Parameters that map draws of the posterior to calibrated draws.

    power
        a.
    share
        w, the weight of least squares.
    spread
        g.
    usual
        Disagreement of draws up to which the share of least squares is w.
    chance
        eps.
    unrelated
        pi.
    counts
        Parameters of the Dirichlet distribution of r, shape (c,).
    """

    power: float
    share: float
    spread: float
    usual: float
    chance: float
    unrelated: float
    counts: np.ndarray


def chance_of(n_rows: int) -> float:
    """Probability eps that a label is drawn uniformly, given the number of rows."""
    return CHANCE_ROWS / (n_rows + CHANCE_ROWS)


def unrelated(score: float, labels: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> float:
    """Posterior probability pi that labels have nothing to do with the features.

    Without features, the label of a row is predicted by the frequencies of the others. Let
    ``score_0`` be the log score of that. The odds are ``exp(score_0 - score + FITTED)``.

    Parameters
    ----------
    score
        Log score of the best calibration.
    labels, weights
        Class index and weight of each row, shape (n,).
    counts
        Sum of the weights of each class, plus 1/2, shape (c,).
    """
    same = np.maximum(counts[labels] - weights, 0.5)  # 0.5 also if a huge weight absorbs it
    other = counts @ (1 - np.eye(len(counts)))
    score_0 = weights @ np.log(same / (same + other[labels]))
    return float(scipy.special.expit(score_0 - score + FITTED))


def best_power(
    logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Find the powers a under which held-out logits score best, and their log scores.

    A power maximises ``sum_i w_i log q_i(y_i) - (log a)^2 / 2``, the sum being the score. The
    maximum is found by golden sections, for all sets of logits at once. There can be several where
    some labels are far less probable than eps, and one of them is found.

    Parameters
    ----------
    logits
        Of each set, shape (..., n, c).
    labels, weights
        Class index and weight of each row, shape (n,).

    Returns
    -------
    tuple
        Powers and scores, shape (...).
    """
    each = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    chance = chance_of(int(np.sum(each > 0)))
    below = logits - logits.max(axis=-1, keepdims=True)
    own_below = below[..., np.arange(len(labels)), labels]

    def score(log_power: np.ndarray) -> np.ndarray:
        power = np.exp(log_power)[..., None]
        parts = power[..., None] * below
        own = np.exp(power * own_below) / np.exp(parts, out=parts).sum(axis=-1)
        return np.log((1 - chance) * own + chance / below.shape[-1]) @ each

    def value(log_power: np.ndarray) -> np.ndarray:
        return score(log_power) - 0.5 * log_power**2

    low, high = (np.full(below.shape[:-2], bound) for bound in BOUNDS[0])
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    of_left, of_right = value(left), value(right)
    for _ in range(SECTIONS):
        down = of_left > of_right
        low, high = np.where(down, low, left), np.where(down, right, high)
        place = np.where(down, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        found = value(place)
        left, right = np.where(down, place, right), np.where(down, left, place)
        of_left, of_right = np.where(down, found, of_right), np.where(down, of_left, found)
    best = (low + high) / 2
    return np.exp(best), score(best)


class _Centred(NamedTuple):
    """Log of the mean probabilities, (m, c), and deviations of the logs of draws, (m, c, s)."""

    centre: np.ndarray
    deviations: np.ndarray


def _centred(draws: np.ndarray, weights: np.ndarray | None = None) -> _Centred:
    """Split the logs of probabilities (m, c, s) of draws with weights (m, s), or equal ones."""
    draws = np.maximum(np.asarray(draws, np.float64), TINY)
    logs = np.log(draws)
    if weights is None:
        mean, of_logs = draws.mean(axis=-1), logs.mean(axis=-1)
    else:
        mean, of_logs = (np.einsum("mcs,ms->mc", part, weights) for part in (draws, logs))
    logs -= of_logs[:, :, None]
    return _Centred(np.log(mean), logs)


def disagreement(draws: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Mutual information of the label and the draw, in nats: shape (m,).

    Parameters
    ----------
    draws
        Class probabilities, shape (m, c, s).
    weights
        Weights of the draws at each row, which sum to one, shape (m, s). Default: equal ones.
    """
    if weights is None:
        weights = np.full((len(draws), draws.shape[2]), 1 / draws.shape[2])
    mean = np.einsum("mcs,ms->mc", draws, weights)
    each = scipy.special.entr(draws).sum(axis=1)
    between = scipy.special.entr(mean).sum(axis=1) - np.sum(each * weights, axis=1)
    return np.maximum(between, 0.0)


def reach(disagreements: np.ndarray, usual: float, n_classes: int) -> np.ndarray:
    """Part h of w that least squares have at rows (m,): 1 up to the usual disagreement.

    Beyond, it falls linearly, to 0 at the largest possible disagreement, log c.
    """
    largest = np.log(n_classes)
    beyond = np.clip((largest - disagreements) / max(largest - usual, TINY), 0.0, 1.0)
    return np.where(disagreements <= usual, 1.0, beyond)


def calibrated_draws(
    draws: np.ndarray,
    squares: np.ndarray | None,
    by: Calibration,
    weights: np.ndarray | None = None,
    numbers: np.ndarray | None = None,
) -> np.ndarray:
    """Draws q of calibrated probabilities: shape (m, c, s).

    Parameters
    ----------
    draws
        Class probabilities of the posterior's draws, shape (m, c, s).
    squares
        Log probabilities of least squares, shape (m, c), or None.
    by
        The calibration; its share is 0 without least squares.
    weights
        Weights of the draws at each row, which sum to one, shape (m, s). Default: equal ones.
    numbers
        Which draws these are, shape (s,): each has its own r. Default: the first s.
    """
    centre, deviations = _centred(draws, weights)
    if squares is not None:
        share = by.share * reach(disagreement(draws, weights), by.usual, draws.shape[1])[:, None]
        centre = (1 - share) * centre + share * squares
    logits = by.power * (centre[:, :, None] + by.spread * deviations)
    sharp = scipy.special.softmax(logits, axis=1)
    related = (1 - by.chance) * sharp + by.chance / sharp.shape[1]
    numbers = np.arange(sharp.shape[2]) if numbers is None else numbers
    frequencies = np.random.default_rng(0).dirichlet(by.counts, numbers.max() + 1)[numbers].T
    return (1 - by.unrelated) * related + by.unrelated * frequencies


def log_prior(at: np.ndarray) -> tuple[float, np.ndarray]:
    """Log prior of (log a, logit w, log g) up to a constant, and its gradient, shape (3,)."""
    means, scales = np.array([LOG_POWER, LOGIT_SHARE, LOG_SPREAD]).T
    below = min(at[0] - means[0], 0.0)
    own = scales if below < 0 else np.array([SHARPENED, *scales[1:]])
    z = (at - means - [0.0, 0.0, SPREAD_BY_POWER * below]) / own
    slope = np.array([z[0], z[1], 2 * z[2] / (1 + z[2] ** 2)]) / own
    slope[0] -= (below < 0) * SPREAD_BY_POWER * slope[2]
    return -0.5 * float(z[:2] @ z[:2]) - np.log1p(z[2] ** 2), -slope


def calibration_loss(
    draws: np.ndarray,
    draw_weights: np.ndarray,
    squares: np.ndarray | None,
    labels: np.ndarray,
    row_weights: np.ndarray,
    usual: float = np.inf,
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return the function of (log a, logit w, log g) that :func:`best_calibration` minimises.

    It returns minus the sum of the log score of the rows and the log priors, up to a constant, and
    its gradient, shape (3,). Arguments are those of :func:`best_calibration`, with positive row
    weights.
    """
    rows, n_classes = np.arange(len(labels)), draws.shape[1]
    centre, deviations = _centred(draws, draw_weights)
    chance = chance_of(len(labels))
    heard = reach(disagreement(draws, draw_weights), usual, n_classes)[:, None]

    def loss_and_slope(at: np.ndarray) -> tuple[float, np.ndarray]:
        power, share, spread = np.exp(at[0]), scipy.special.expit(at[1]), np.exp(at[2])
        middle = centre if squares is None else centre + share * heard * (squares - centre)
        wide = power * spread * deviations
        logits = power * middle[:, :, None] + wide
        sharp = scipy.special.softmax(logits, axis=1)
        mine = draw_weights * sharp[rows, labels]  # (n, s)
        total = (1 - chance) * mine.sum(axis=1) + chance / n_classes
        part = (row_weights * (1 - chance) / total)[:, None] * mine

        def slope_of_draws(change: np.ndarray) -> float:
            ahead = change[rows, labels] - np.einsum("ncs,ncs->ns", sharp, change)
            return float(np.sum(part * ahead))

        def slope_of_rows(change: np.ndarray) -> float:
            mean = np.einsum("ncs,ns->nc", sharp, part)
            return float(part.sum(axis=1) @ change[rows, labels] - np.sum(mean * change))

        by_spread = slope_of_draws(wide)
        slopes = np.array([slope_of_rows(power * middle) + by_spread, 0.0, by_spread])
        if squares is not None:
            slopes[1] = slope_of_rows(power * share * (1 - share) * heard * (squares - centre))
        log_density, by_prior = log_prior(at)
        score = float(row_weights @ np.log(total))
        return -log_density - score, -by_prior - slopes

    return loss_and_slope


def best_calibration(
    draws: np.ndarray,
    draw_weights: np.ndarray,
    squares: np.ndarray | None,
    labels: np.ndarray,
    row_weights: np.ndarray | None = None,
) -> Calibration:
    """Find the calibration that maximises the score of held-out predictions.

    Parameters
    ----------
    draws
        Probabilities of rows by draws given the other labels, shape (n, c, s).
    draw_weights
        Weights of the draws at each row, which sum to one, shape (n, s).
    squares
        Log probabilities of rows by least squares without their labels, shape (n, c), or None.
    labels
        Class index of each row, shape (n,).
    row_weights
        Weight of each row, shape (n,).

    Returns
    -------
    Calibration
        The maximiser of ``sum_i w_i log q_i(y_i)``, with q the mean over the draws, plus the log
        priors of log a, logit w and log g. The first two are normal, that of log a with two
        widths. The third is Cauchy, and its centre depends on a (:data:`SPREAD_BY_POWER`).
    """
    each = np.ones(len(labels)) if row_weights is None else np.asarray(row_weights, np.float64)
    kept = each > 0
    other = None if squares is None else squares[kept]
    mine, weights = np.asarray(labels)[kept], each[kept]
    usual = float(np.quantile(disagreement(draws[kept], draw_weights[kept]), USUAL))
    loss = calibration_loss(draws[kept], draw_weights[kept], other, mine, weights, usual)
    tried = [
        scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=BOUNDS)
        for start in STARTS
    ]
    found = min(tried, key=lambda each: each.fun).x
    share = 0.0 if other is None else float(scipy.special.expit(found[1]))
    score = -loss(found)[0] - log_prior(found)[0]
    counts = np.bincount(mine, weights, draws.shape[1]) + 0.5
    return Calibration(
        power=float(np.exp(found[0])),
        share=share,
        spread=float(np.exp(found[2])),
        usual=usual,
        chance=chance_of(len(mine)),
        unrelated=unrelated(score, mine, weights, counts),
        counts=counts,
    )
