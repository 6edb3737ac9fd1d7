"""How a fitted classifier predicts: the choice, and the methods that scikit-learn users expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bmsvm._validation import check_choice, check_flag, check_probability, labels_of_rows
from bmsvm.posterior import Posterior
from bmsvm.prediction import uncertainty
from bmsvm.predictive import UNCALIBRATED, PredictiveDistribution


@dataclass(frozen=True)
class Predictive:
    """How predictions are made from the posterior.

    Parameters
    ----------
    calibrate
        Whether probabilities are calibrated by leave-one-out. None: if the model allows it, which
        needs ``coupling="sum_to_zero"`` and no kernel parameters that are sampled off a grid.
    squares
        Whether calibrated probabilities are pooled with those of least squares, in the proportion
        that leave-one-out finds best (:mod:`bmsvm.prediction.calibration`).
    remainder
        Whether functions at a new row have the conditional variance of the Gaussian process given
        the training rows, so that uncertainty grows away from the data. If not, functions are the
        kernel expansion (1), which vanishes far from the data.
    decision
        ``"probability"``: predict the most probable class. ``"exclusion"``: predict the class with
        the smallest averaged probability of *not* being the class of the row, eq. (20), which can
        contradict ``predict_proba``.
    """

    calibrate: bool | None = None
    squares: bool = True
    remainder: bool = True
    decision: str = "probability"

    def __post_init__(self) -> None:
        if callable(self.calibrate):
            raise ValueError(
                f"calibrate must be True, False or None; got {self.calibrate!r}; "
                "numpyro.infer.Predictive, which takes a model, is another class"
            )
        if self.calibrate is not None:
            check_flag("calibrate", self.calibrate)
        check_flag("squares", self.squares)
        check_flag("remainder", self.remainder)
        check_choice("decision", self.decision, ("probability", "exclusion"))


PREDICTIVES = {
    "auto": Predictive(),
    "calibrated": Predictive(calibrate=True, squares=False),
    "posterior": Predictive(calibrate=False, squares=False),
    "paper": Predictive(calibrate=False, squares=False, remainder=False, decision="exclusion"),
}


def as_predictive(predictive: Any) -> Predictive:
    """Return the way to predict that a name or an object stands for."""
    if isinstance(predictive, Predictive):
        return predictive
    check_choice("predictive", predictive, PREDICTIVES)
    return PREDICTIVES[predictive]


class Predicting:
    """Mixin: predictions of an estimator that has ``predictive_`` and ``classes_``."""

    classes_: np.ndarray
    predictive_: PredictiveDistribution
    predictive: Any

    @property
    def posterior_(self) -> Posterior:
        """The posterior of the model."""
        return self.predictive_.posterior

    def standardized_rows(self, X: Any) -> np.ndarray:
        """Check new rows (m, p), and return them as the kernel of the fitted model sees them."""
        raise NotImplementedError

    def predict(self, X: Any, loss: ArrayLike | None = None) -> np.ndarray:
        """Predict the class of each row: shape (m,).

        The most probable class, the first of them in case of a tie. With ``predictive="paper"`` the
        class with the smallest exclusion probability, eq. (20). With a loss the class k with the
        smallest expected loss ``sum_j p_j loss[j, k]``.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Rows.
        loss : array-like of shape (c, c), optional
            Loss of predicting class k where class j is true, classes in the order of ``classes_``;
            or a DataFrame whose rows and columns are labelled by the classes, in any order.
        """
        if loss is not None:
            check_is_fitted(self, "predictive_")
            matrix = uncertainty.check_loss(loss, self.classes_)
            return self.classes_[uncertainty.decide(self.predict_proba(X), matrix)]
        best = np.argmax(self._merit(X), axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, the mean of the predictive distribution: shape (m, c).

        They describe the population of the training rows, each counted by its weight: with
        ``class_weight="balanced"``, one in which all classes are equally frequent.
        """
        check_is_fitted(self, "predictive_")
        return self.predictive_.probabilities(self.standardized_rows(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of ``predict_proba``: shape (m, c)."""
        return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """Score of each class, largest for the class that ``predict`` chooses.

        The logarithm of the number that ``predict`` maximises, minus its mean over the classes:
        shape (m, c). With two classes the log odds of the second, shape (m,).
        :meth:`class_functions` returns the posterior mean of the class functions, which may order
        the classes differently.
        """
        merit = self._merit(X)
        if merit.shape[1] == 2:
            lead = merit[:, 1] - merit[:, 0]
            return np.copysign(np.log1p(np.abs(lead) / merit.min(axis=1)), lead)
        logs = np.log(merit)
        scores = logs - logs.mean(axis=1, keepdims=True)
        # Logarithms of neighbouring numbers may be equal; argmax would then take another class.
        rows, best = np.arange(len(merit)), merit.argmax(axis=1)
        scores[rows, best] = np.where(
            scores.argmax(axis=1) == best, scores[rows, best], np.nextafter(scores.max(1), np.inf)
        )
        return scores

    def class_functions(self, X: Any) -> np.ndarray:
        """Posterior means of the class functions f, which sum to zero: shape (m, c)."""
        check_is_fitted(self, "predictive_")
        return self.posterior_.functions(self.standardized_rows(X))

    def latent_mean_and_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the class functions f, each of shape (m, c).

        As ``GaussianProcessClassifier.latent_mean_and_variance`` of scikit-learn, for any number of
        classes. Over S draws, with ``g_js`` the function of class j of draw s, and ``h_js`` its
        conditional variance at a new row given its values at the training rows::

            E f_j = mean_s g_js,    Var f_j = mean_s (g_js - E f_j)^2 + mean_s h_js

        (:meth:`bmsvm.Posterior.latent_mean_and_variance`). Calibration changes probabilities, and
        not these functions.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Rows.

        Returns
        -------
        latent_mean, latent_var : ndarray of shape (m, c)
            Classes in the order of ``classes_``. The means are those of :meth:`class_functions`.
        """
        check_is_fitted(self, "predictive_")
        return self.posterior_.latent_mean_and_variance(self.standardized_rows(X))

    def predict_exclusion(self, X: Any) -> np.ndarray:
        """Averaged probability of not being in a class, ``E exp(-(f_j + d)_+)``: shape (m, c).

        Eq. (20). The paper predicts the class for which it is smallest.
        """
        check_is_fitted(self, "predictive_")
        return self.posterior_.exclusion(self.standardized_rows(X))

    def predict_uncertainty(self, X: Any, level: float = 0.9) -> uncertainty.Uncertainty:
        """Credible intervals of the probabilities, and their entropy split in two.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Rows.
        level : float
            Probability of the credible intervals.

        Returns
        -------
        bmsvm.prediction.uncertainty.Uncertainty
            ``probabilities`` (those of ``predict_proba``), ``lower``, ``upper``, ``entropy``,
            ``aleatoric``, ``epistemic``, ``exclusion``.
        """
        check_is_fitted(self, "predictive_")
        check_probability("level", level)
        return self.predictive_.uncertainty(self.standardized_rows(X), level)

    def posterior_predictive(self, X: Any) -> xarray.Dataset:
        """Draw class functions f, class probabilities p and labels y at rows.

        Draws of p are those of the predictive distribution, and y is drawn by p.

        Returns
        -------
        xarray.Dataset
            ``f`` and ``p`` with dims (chain, draw, row, class), ``y`` with (chain, draw, row),
            named by class and by the index of X if it has one. ArviZ takes it as it is. The
            attribute ``comment`` of each says whether it is calibrated: f never is.
        """
        check_is_fitted(self, "predictive_")
        rows = self.standardized_rows(X)
        draws, shape = self.predictive_.sample(rows), self.posterior_.shape
        dims = ("chain", "draw", "row", "class")
        about = self.predictive_.about
        parts = {
            "f": (draws.functions, UNCALIBRATED),
            "p": (draws.probabilities, about),
            "y": (self.classes_[draws.labels], about),
        }
        return xarray.Dataset(
            {
                name: (
                    dims[: value.ndim + 1],
                    value.reshape(*shape, *value.shape[1:]),
                    {"comment": comment},
                )
                for name, (value, comment) in parts.items()
            },
            coords={
                "chain": np.arange(shape[0]),
                "draw": np.arange(shape[1]),
                "row": labels_of_rows(X, len(rows)),
                "class": self.classes_,
            },
        )

    def prediction_sets(
        self, X: Any, level: float = 0.9, *, method: str = "bayes", by_class: bool = False
    ) -> np.ndarray:
        """Return sets of classes that contain the row's class with a given probability.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Rows.
        level : float
            Probability that the set contains the class.
        method : str
            ``"bayes"``: the smallest sets of that predictive probability. ``"conformal"``: sets
            that contain the class of about that share of rows, also if the probabilities are wrong.
            They can be empty where no class fits. With chains they are made by jackknife+: if the
            row is exchangeable with the training rows, they contain its class with probability at
            least ``2 level - 1``, up to the approximation of refits by importance weights, with
            what was chosen from the data the same. Under
            ``likelihood="squared"``, which ``"auto"`` is with many rows or classes, they are made
            by the jackknife, for which there is no bound.
        by_class : bool
            Whether conformal sets aim at the level within each class, not only on average.

        Returns
        -------
        ndarray of bool, shape (m, c)
            Membership of the classes, in the order of ``classes_``.
        """
        check_probability("level", level)
        check_choice("method", method, ("bayes", "conformal"))
        check_flag("by_class", by_class)
        if by_class and method == "bayes":
            raise ValueError('by_class=True needs method="conformal"; got method="bayes"')
        check_is_fitted(self, "predictive_")
        if method == "bayes":
            return uncertainty.prediction_sets(self.predict_proba(X), level)
        rows = self.standardized_rows(X)
        return self.predictive_.conformal_sets(rows, level, by_class=by_class)

    def predict_reject(
        self, X: Any, error: float = 0.05, *, each_row: bool = False
    ) -> np.ma.MaskedArray:
        """Predict the most probable class, or abstain, so that the expected error meets a target.

        The expected error of a row is one minus its largest probability. The most certain rows are
        accepted, as many as keep the average of their expected errors at most ``error``, so that
        the decision for a row depends on all rows of X. The target is met only if the
        probabilities are right. Calibrated probabilities of n training rows and c classes are at
        most ``1 - (1 - 1/c) 0.5/(n + 0.5)``: an ``error`` below ``(1 - 1/c) 0.5/(n + 0.5)`` masks
        every row.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Rows.
        error : float
            Target of the expected error among accepted rows.
        each_row : bool
            Whether each accepted row has to meet the target on its own. This accepts fewer rows,
            and the decision for a row does not depend on the other rows.

        Returns
        -------
        numpy.ma.MaskedArray of shape (m,)
            Labels, masked where the classifier abstains.
        """
        check_probability("error", error)
        chances = self.predict_proba(X)
        accepted = uncertainty.accept(chances, error, each_row=each_row)
        return np.ma.MaskedArray(self.classes_[np.argmax(chances, axis=1)], mask=~accepted)

    def _merit(self, X: Any) -> np.ndarray:
        """Return what ``predict`` compares: shape (m, c)."""
        check_is_fitted(self, "predictive_")
        if as_predictive(self.predictive).decision == "exclusion":
            return 1.0 / self.predict_exclusion(X)
        return self.predict_proba(X)
