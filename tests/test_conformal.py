"""Conformal sets: jackknife+ against its definition, and its coverage with exact refits.

The classifier here is a kernel density estimate of each class, which is fitted again without a row
by leaving a term out of a sum. Each left-out row has a draw of its own, with weight one.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from bmsvm.prediction.conformal import HeldOutRows, conformal_sets
from bmsvm.prediction.uncertainty import prediction_sets

LEVELS = (0.8, 0.9)
N_ROWS, N_NEW, SEEDS = 60, 300, 40
SHARES = np.array([0.6, 0.25, 0.15])


def brute_force(held_out, draws, level, by_class):
    """Membership by loops over new rows, classes and training rows."""
    m, c, _ = draws.shape
    member = np.zeros((m, c), bool)
    for x in range(m):
        for y in range(c):
            count, smaller = 0, 0
            for i, own in enumerate(held_out.labels):
                if by_class and own != y:
                    continue
                count += 1
                of_row = 1 - held_out.probabilities[i, own]
                of_new = 1 - np.dot(held_out.weights[i], draws[x, y])
                smaller += of_row < of_new
            member[x, y] = smaller < level * (count + 1)
    return member


def random_rows(rng, n=23, c=3, s=7):
    """Held-out rows and draws of 11 new ones without any meaning."""
    return HeldOutRows(
        rng.integers(c, size=n),
        rng.dirichlet(np.ones(c), size=n),
        np.arange(s),
        rng.dirichlet(np.full(s, 0.1), size=n),
    ), np.moveaxis(rng.dirichlet(np.full(c, 0.2), size=(11, s)), -1, 1)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_sets_are_those_of_the_definition(seed, by_class):
    held_out, draws = random_rows(np.random.default_rng(seed))
    for level in (0.4, 0.6, 0.8):
        found = conformal_sets(held_out, draws, level, by_class=by_class)
        np.testing.assert_array_equal(found, brute_force(held_out, draws, level, by_class))
        assert 0 < found.mean() < 1


@pytest.mark.parametrize("by_class", [False, True])
def test_a_higher_level_has_larger_sets(by_class):
    held_out, draws = random_rows(np.random.default_rng(5), n=200)
    sets = [conformal_sets(held_out, draws, level, by_class=by_class) for level in (0.3, 0.6, 0.9)]
    for smaller, larger in itertools.pairwise(sets):
        assert np.all(smaller <= larger)
        assert smaller.sum() < larger.sum()


def test_classes_of_too_few_rows_for_the_level_are_always_held():
    """Of n rows of a class at most n are smaller than a new one: level (n + 1) > n holds it."""
    held_out, draws = random_rows(np.random.default_rng(6))
    held_out = held_out._replace(labels=np.repeat([0, 1, 2], [10, 5, 8]))
    found = conformal_sets(held_out, np.zeros_like(draws), 0.9, by_class=True)
    np.testing.assert_array_equal(found, np.tile([False, True, True], (len(draws), 1)))


# Coverage --------------------------------------------------------------------------------------


def simulated(rng, n):
    """Rows of three classes of unequal size in the plane, which overlap."""
    labels = rng.choice(3, size=n, p=SHARES)
    return rng.normal(size=(n, 2)) + 1.5 * np.eye(3)[labels][:, :2], labels


def refits(rows, labels, new, width, wrong):
    """Held-out rows by refits, and probabilities of new rows (m, c) by each refit (m, c, n).

    The probabilities of a wrong model are of the next class each.
    """

    def kernel(a, b):
        return np.exp(-0.5 * ((a[:, None] - b) ** 2).sum(-1) / width**2)

    def normalised(sums):
        p = (sums + 1e-9) / (sums + 1e-9).sum(1, keepdims=True)
        return np.roll(p, 1, axis=1) if wrong else p

    one_hot, inner, cross = np.eye(3)[labels], kernel(rows, rows), kernel(new, rows)
    own = normalised((inner - np.diag(np.diag(inner))) @ one_hot)
    at_new = normalised((cross @ one_hot)[:, :, None] - cross[:, None, :] * one_hot.T)
    n = len(rows)
    return HeldOutRows(labels, own, np.arange(n), np.eye(n)), at_new


def coverages(level, *, width=0.4, wrong=False, by_class=False, fitted=False):
    """Share of new rows whose set holds their class, by seed and class: (hits, counts), (k, c)."""
    hits, counts = [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng((7, seed))
        (rows, labels), (new, truth) = simulated(rng, N_ROWS), simulated(rng, N_NEW)
        held_out, draws = refits(rows, labels, new, width, wrong)
        if fitted:  # what a row's own label has told the model
            itself = refits(rows, labels, rows, width, wrong)[1]
            held_out = held_out._replace(probabilities=itself.mean(-1))
        member = conformal_sets(held_out, draws, level, by_class=by_class)
        hits.append(np.bincount(truth, member[np.arange(N_NEW), truth], minlength=3))
        counts.append(np.bincount(truth, minlength=3))
    return np.array(hits), np.array(counts)


def assert_covered(hits, counts, level, excess):
    """At least ``2 level - 1``, and near the level; false alarm 1e-5 each.

    ``excess`` is how far coverage may be from the level beyond chance.
    """
    shares = hits / counts
    allowed = stats.t.isf(5e-6, SEEDS - 1) * shares.std(ddof=1) / np.sqrt(SEEDS)
    assert shares.mean() > 2 * level - 1 + allowed
    assert abs(shares.mean() - level) < allowed + excess


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_sets_hold_the_class_whatever_the_model(level, wrong):
    hits, counts = coverages(level, wrong=wrong)
    assert_covered(hits.sum(1), counts.sum(1), level, 0.02)


@pytest.mark.parametrize("wrong", [False, True])
def test_sets_by_class_hold_each_class(wrong):
    """The rarest class has nine rows: the level in multiples of 1/10 is up to 0.1 above it."""
    hits, counts = coverages(0.8, wrong=wrong, by_class=True)
    for hit, count, excess in zip(hits.T, counts.T, (0.03, 0.06, 0.1), strict=True):
        assert_covered(hit, count, 0.8, excess)


def test_without_classes_apart_a_rare_class_is_seldom_held():
    """What ``by_class`` is for: sets hold 80% of all rows, and far fewer of the last class."""
    hits, counts = coverages(0.8)
    shares = hits.sum(0) / counts.sum(0)
    assert shares[2] < 0.65
    assert shares[0] > 0.8


def test_sets_of_a_wrong_model_by_its_probabilities_miss_the_class():
    """And scores of rows that the model has seen do not help either: it is too sure of them."""
    rng = np.random.default_rng(8)
    (rows, labels), (new, truth) = simulated(rng, N_ROWS), simulated(rng, N_NEW)
    for wrong, most in ((True, 0.6), (False, 0.85)):
        probabilities = refits(rows, labels, new, 0.2, wrong)[1].mean(-1)
        member = prediction_sets(probabilities, 0.9)
        assert member[np.arange(N_NEW), truth].mean() < most
    hits, counts = coverages(0.9, width=0.2, fitted=True)
    assert hits.sum() / counts.sum() < 0.8
    hits, counts = coverages(0.9, width=0.2)
    assert_covered(hits.sum(1), counts.sum(1), 0.9, 0.03)
