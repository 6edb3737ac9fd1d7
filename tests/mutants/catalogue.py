"""The mutants: one error each, with the tests that are to fail because of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """An error in one function.

    name
        What is wrong.
    function
        Module and qualified name, ``module:outer.inner``.
    right, wrong
        An expression, or statements, of that function, and what is put in its place. They are
        compared as syntax trees: line breaks and comments do not matter.
    tests
        File of tests and, after a space, an expression for ``pytest -k`` whose first word is part
        of the name of a test.
    occurrences
        How often the right code occurs in the function; the first is replaced.
    """

    name: str
    function: str
    right: str
    wrong: str
    tests: str
    occurrences: int = 1


CONDITIONALS = "bmsvm.models.conditionals"
WHITENING = "bmsvm.models.whitening"
LIKELIHOODS = "bmsvm.models.likelihoods"
THETA = "bmsvm.models.theta"
BLOCKS = "bmsvm.inference.blocks"
LOW_RANK = "bmsvm.kernels.low_rank"
CONVERGENCE = "bmsvm.convergence"
CALIBRATION = "bmsvm.prediction.calibration"
CONFORMAL = "bmsvm.prediction.conformal"
PREDICTIVE = "bmsvm.predictive"
SQUARED = "bmsvm.models.squared"
TABLE = "bmsvm.inference.table"
PERSISTENCE = "bmsvm.persistence"
ENCODING = "bmsvm._encoding"
CHECKPOINT = "bmsvm.checkpoint"

MUTANTS = (
    Mutant(
        "noise: shape with nc scores, as printed, instead of n(c-1)",
        f"{CONDITIONALS}:noise_variance_collapsed",
        "problem.n_scores",
        "problem.n_rows * problem.n_classes",
        "test_conditional_draws.py noise_draws_follow",
    ),
    Mutant(
        "precision: shape counts one column only",
        f"{CONDITIONALS}:precision_full",
        "problem.rank * problem.n_columns",
        "problem.rank",
        "test_conditional_draws.py scale_draws_follow",
    ),
    Mutant(
        "weights: sign of the intercept",
        f"{CONDITIONALS}:weights_full",
        "projection.coordinates - shift",
        "projection.coordinates + shift",
        "test_conditional_draws.py intercept_and_weights_draws",
    ),
    Mutant(
        "weights: tau forgotten in the mean from white coordinates",
        f"{CONDITIONALS}:weights_given_white",
        "jnp.sqrt(eigenvalues / precision)",
        "jnp.sqrt(eigenvalues)",
        "test_coordinates.py give_the_weights_that",
    ),
    Mutant(
        "intercept: eta forgotten",
        f"{CONDITIONALS}:intercept_collapsed",
        "problem.hyper.intercept_precision + parts.ones_ones",
        "parts.ones_ones",
        "test_conditional_draws.py intercept_and_weights_draws",
    ),
    Mutant(
        "scores: sign of the score's own error in its mean",
        f"{CONDITIONALS}:score_moments",
        "own + here",
        "own - here",
        "test_conditional_draws.py score_draws_follow",
    ),
    Mutant(
        "scores: twice the variance",
        f"{CONDITIONALS}:score_moments",
        "noise_variance / 2",
        "noise_variance",
        "test_conditional_draws.py score_draws_follow",
    ),
    Mutant(
        "exact scores: right piece not shifted",
        "bmsvm.models.two_piece:draw",
        "mean - scale * tilt",
        "mean",
        "test_two_piece.py draw",
    ),
    Mutant(
        "Metropolis scores: wrong variance in the prior ratio",
        f"{BLOCKS}.scores:metropolis_scores.move.update",
        "2 * scale**2",
        "scale**2",
        "test_blocks_invariance.py block_leaves and metropolis",
    ),
    Mutant(
        "scale: Jacobian missing",
        f"{BLOCKS}.scale:scale.move.log_density",
        "likelihood + prior + 2 * log_alpha",
        "likelihood + prior",
        "test_blocks_invariance.py block_leaves and scale",
    ),
    Mutant(
        "collapsed tau: Jacobian of log tau missing",
        f"{BLOCKS}.parameters:collapsed_parameters.move.log_density",
        "log_p + log_precision",
        "log_p",
        "test_blocks_invariance.py block_leaves and collapsed",
    ),
    Mutant(
        "momentum: Jacobian of the logarithms missing",
        f"{BLOCKS}.hamiltonian:_log_density",
        "jnp.sum(coordinates.logs)",
        "0.0",
        "test_blocks_invariance.py block_leaves and hamiltonian",
    ),
    Mutant(
        "momentum: sign of the kinetic energy",
        f"{BLOCKS}.hamiltonian:hamiltonian.step",
        "jnp.sum(momentum**2) - jnp.sum(end_momentum**2)",
        "jnp.sum(end_momentum**2) - jnp.sum(momentum**2)",
        "test_blocks_invariance.py block_leaves and hamiltonian",
    ),
    Mutant(
        "adaptation: goes on after warm-up",
        "bmsvm.inference.adaptation:adapt",
        "phase.warming_up",
        "phase.sweep >= 0",
        "test_samplers.py tuning_stands_still",
    ),
    Mutant(
        "whitening: noise that the columns do not determine is left out",
        f"{WHITENING}:whiten",
        "_grouped(noise.outside, problem)",
        "jnp.zeros_like(grouped)",
        "test_coordinates.py white_coordinates",
    ),
    Mutant(
        "whitening: what lies outside a basis of low rank is drawn anew",
        f"{WHITENING}:whiten",
        "grouped - _onto_rows(shift, basis)",
        "fresh - _onto_rows(shift, basis)",
        "test_sbc.py ranks_are_uniform and truncated",
    ),
    Mutant(
        "sweep: blocks see the factor of the theta at which chains began",
        f"{BLOCKS}.base:in_turn",
        "problem.at(position.kernel)",
        "problem",
        "test_lengthscale.py sweep_with_theta",
    ),
    Mutant(
        "theta: parameters drawn with the factor before the move",
        f"{BLOCKS}.lengthscale:lengthscale.attempt",
        "now = problem.at(position.kernel)",
        "now = here",
        "test_lengthscale.py moves_of_theta and collapsed",
    ),
    Mutant(
        "theta: Jacobian of tau along the ridge missing",
        f"{BLOCKS}.lengthscale:_surrogate.log_density",
        "jnp.log(precision)",
        "0.0",
        "test_lengthscale.py moves_of_theta and ridge",
    ),
    Mutant(
        "theta: prior forgotten",
        "bmsvm.inference.grid_walk:walk_on_grid",
        "log_prior[proposal] - log_prior[kernel]",
        "0.0",
        "test_lengthscale.py moves_of_theta and grid",
    ),
    Mutant(
        "theta off the grid: Jacobian of the unconstrained parameters missing",
        f"{THETA}:log_prior_of.one",
        "jnp.sum(jacobian)",
        "0.0",
        "test_lengthscale.py moves_of_theta and feature",
    ),
    Mutant(
        "theta: sign of the determinant of the noisy copies",
        f"{WHITENING}:log_density_given_noise",
        "explained - columns.coordinates.shape[1] * jnp.sum(log_det)",
        "explained + columns.coordinates.shape[1] * jnp.sum(log_det)",
        "test_lengthscale.py moves_of_theta and surrogate",
    ),
    Mutant(
        "slice: level too low",
        "bmsvm.inference.slice:slice_step",
        "jnp.log1p(-places[0])",
        "2 * jnp.log1p(-places[0])",
        "test_slice.py slice_step_leaves",
    ),
    Mutant(
        "likelihood: weights of rows ignored",
        f"{LIKELIHOODS}:weigh",
        "weights * log_likelihoods",
        "log_likelihoods",
        "test_row_weights.py joint_is_the_prior",
    ),
    Mutant(
        "hinge: the row's own class counted too",
        f"{LIKELIHOODS}:hinge",
        "own - excess.sum(0)",
        "-excess.sum(0)",
        "test_likelihoods.py hinge_sums",
    ),
    Mutant(
        "masked designs: columns see the rows of their own class",
        f"{THETA}:masked_design",
        "labels[None, :] != np.arange(n_classes)[:, None]",
        "labels[None, :] >= 0 * np.arange(n_classes)[:, None]",
        "test_conditionals.py columns_are_normal",
    ),
    Mutant(
        "prediction: variance away from the rows forgotten",
        "bmsvm.prediction.evaluate:_batches",
        "scale / np.sqrt(draws.precision[numbers])",
        "0.0 * scale",
        "test_posterior.py remainder_is_what",
    ),
    Mutant(
        "low rank: what landmarks leave of a row is told to be nothing",
        f"{LOW_RANK}:low_rank_factor",
        "np.maximum(own - np.sum(part**2, axis=1), 0.0)",
        "0.0 * own",
        "test_low_rank.py basis_of_all_rows",
    ),
    Mutant(
        "low rank: landmarks with the kernel matrix itself and not its inverse root",
        f"{LOW_RANK}:_inverse_root_of",
        "vectors[:, kept] / np.sqrt(values[kept])",
        "vectors[:, kept] * np.sqrt(values[kept])",
        "test_low_rank.py basis_of_all_rows",
    ),
    Mutant(
        "low rank: waves at frequencies of another lengthscale",
        "bmsvm.kernels.functions:Stationary.frequencies",
        "normal / np.asarray(lengthscale, np.float64)",
        "normal / np.asarray(lengthscale, np.float64) ** 2",
        "test_low_rank.py waves_have",
    ),
    Mutant(
        "low rank: what landmarks leave is told to be nothing where models predict",
        "bmsvm.prediction.evaluate:Stage.basis",
        "np.sqrt(np.maximum(own - np.sum(inside**2, axis=1), 0.0))",
        "0.0 * own",
        "test_low_rank.py predicts_from_landmarks",
    ),
    Mutant(
        "leave-one-out: what landmarks leave of a row forgotten",
        "bmsvm.prediction.leave_one_out:_over_cavities.one",
        'noise_variance / draw["precision"] * here.remainder[rows]',
        "0.0",
        "test_loo.py low_rank",
    ),
    Mutant(
        "leave-one-out: some rows have the labels of others",
        "bmsvm.prediction.leave_one_out:leave_one_out",
        "np.asarray(problem.labels)[rows]",
        "np.asarray(problem.labels)[: len(rows)]",
        "test_loo.py some_rows_are",
    ),
    Mutant(
        "leave-one-out: draws that have seen a row's label count as others do",
        "bmsvm.prediction.leave_one_out:held_out_draws",
        "np.exp(log_weights)",
        "np.full(log_weights.shape, 1 / log_weights.shape[1])",
        "test_loo.py held_out_draws_are_those",
    ),
    Mutant(
        "prediction: all draws share the points of the noise",
        "bmsvm.posterior:Posterior._points",
        "points.reshape(-1, per_draw, k)[order]",
        "points.reshape(-1, per_draw, k)[0 * order]",
        "test_posterior.py noise_is_integrated",
    ),
    Mutant(
        "prediction: intervals of draws that are not calibrated",
        "bmsvm.predictive:PredictiveDistribution.uncertainty",
        "self.draws(rows, functions=True)",
        "self.posterior.evaluate(rows)",
        "test_predictive.py every_number and calibrated",
    ),
    Mutant(
        "prediction: entropy of the mean that is not calibrated",
        "bmsvm.predictive:PredictiveDistribution.uncertainty",
        "uncertainty.Uncertainty(*(np.concatenate(each) for each in zip(*parts, strict=True)))",
        """uncertainty.Uncertainty(
            *(np.concatenate(each) for each in zip(*parts, strict=True))
        )._replace(entropy=uncertainty.entropy(self.posterior.probabilities(rows)))""",
        "test_predictive.py every_number and calibrated",
    ),
    Mutant(
        "prediction: labels are drawn by the mean of the draws",
        "bmsvm.predictive:PredictiveDistribution.sample",
        "np.cumsum(q, axis=-1)[..., :-1]",
        "np.cumsum(q.mean(axis=0, keepdims=True), axis=-1)[..., :-1]",
        "test_predictive.py labels_are_drawn and calibrated",
    ),
    Mutant(
        "calibration: the share goes to the posterior",
        f"{CALIBRATION}:calibrated_draws",
        "(1 - by.share) * centre + by.share * squares",
        "by.share * centre + (1 - by.share) * squares",
        "test_calibration.py draws_are_those_of",
    ),
    Mutant(
        "calibration: the share of the score goes to the posterior",
        f"{CALIBRATION}:calibration_loss.loss_and_slope",
        "(1 - share) * centre + share * squares",
        "share * centre + (1 - share) * squares",
        "test_calibration.py loss_is_minus",
    ),
    Mutant(
        "calibration: the spread is ignored",
        f"{CALIBRATION}:calibrated_draws",
        "by.spread * deviations",
        "deviations",
        "test_calibration.py draws_are_those_of",
    ),
    Mutant(
        "calibration: the spread is ignored in the score",
        f"{CALIBRATION}:calibration_loss.loss_and_slope",
        "power * spread * deviations",
        "power * deviations",
        "test_calibration.py loss_is_minus",
    ),
    Mutant(
        "calibration: chance is left out",
        f"{CALIBRATION}:calibrated_draws",
        "(1 - by.chance) * sharp + by.chance / sharp.shape[1]",
        "sharp",
        "test_calibration.py draws_are_those_of",
    ),
    Mutant(
        "calibration: chance is left out of the score",
        f"{CALIBRATION}:calibration_loss.loss_and_slope",
        "(1 - chance) * mine.sum(axis=1) + chance / n_classes",
        "(1 - chance) * mine.sum(axis=1)",
        "test_calibration.py loss_is_minus",
    ),
    Mutant(
        "calibration: rows count alike whatever their weights",
        f"{CALIBRATION}:best_calibration",
        "each[kept]",
        "np.ones(int(kept.sum()))",
        "test_calibration.py best_calibration_is_that",
    ),
    Mutant(
        "calibration: pairs of theta and tau are scored without it",
        "bmsvm.selection.modes:_calibrated_log_loss",
        "-best_power(scores, labels, weights)[1]",
        "-weights @ scipy.special.log_softmax(scores, axis=1)[np.arange(len(labels)), labels]",
        "test_modes.py scored_after_calibration",
    ),
    Mutant(
        "least squares: a row is predicted with its own label",
        "bmsvm.prediction.squares:_solutions",
        "held_out, _ = squared.without_own_label(mean, variance, codes, weights)",
        "held_out = mean",
        "test_squares.py dense_solution",
    ),
    Mutant(
        "least squares: pairs are averaged without their powers",
        "bmsvm.prediction.squares:least_squares",
        "found.powers * shares / shares.sum()",
        "shares / shares.sum()",
        "test_squares.py averaged_by_the_exponential",
    ),
    Mutant(
        "conformal sets: the comparison of scores is reversed",
        f"{CONFORMAL}:conformal_sets",
        "own[:, None, None] > at_new",
        "own[:, None, None] < at_new",
        "test_conformal.py sets_are_those_of_the_definition",
    ),
    Mutant(
        "conformal sets: new rows are predicted by all rows, the weights of left-out rows ignored",
        f"{CONFORMAL}:conformal_sets",
        "held_out.weights @ draws.reshape(m * c, s).T",
        "np.full_like(held_out.weights, 1 / s) @ draws.reshape(m * c, s).T",
        "test_conformal.py sets_are_those_of_the_definition",
    ),
    Mutant(
        "conformal sets: classes apart are compared with rows of all classes",
        f"{CONFORMAL}:conformal_sets",
        "held_out.labels == j",
        "held_out.labels >= 0",
        "test_conformal.py sets_by_class_hold_each_class",
    ),
    Mutant(
        "conformal sets: a row's own score is of the model that has seen its label",
        f"{PREDICTIVE}:PredictiveDistribution.held_out_rows",
        'means = np.einsum("ncs,ns->nc", q, weights)',
        "means = self.probabilities(self.posterior.training_rows)",
        "test_predictive.py conformal_sets_compare_left_out_rows",
    ),
    Mutant(
        "conformal sets: held-out draws are centred without their weights",
        f"{PREDICTIVE}:PredictiveDistribution.held_out_rows",
        "calibrated_draws(q, held_out.squares, self.calibration, weights)",
        "calibrated_draws(q, held_out.squares, self.calibration)",
        "test_predictive.py conformal_sets_compare_left_out_rows",
    ),
    Mutant(
        "conformal sets: weights of left-out rows go to other draws",
        f"{PREDICTIVE}:PredictiveDistribution.conformal_sets",
        "part.probabilities[:, :, held_out.draws]",
        "part.probabilities[:, :, : len(held_out.draws)]",
        "test_predictive.py conformal_sets_compare_left_out_rows",
    ),
    Mutant(
        "table: held-out draws are at the means of the functions",
        "bmsvm.prediction.leave_one_out_of_table:held_out_draws_of_table",
        "cells.means[place, rows] + spread * points",
        "cells.means[place, rows]",
        "test_table.py held_out_draws_have",
    ),
    Mutant(
        "intervals: not widened to hold the mean of skewed draws",
        "bmsvm.prediction.uncertainty:summarise",
        "np.minimum(lower, mean), np.maximum(upper, mean)",
        "lower, upper",
        "test_uncertainty.py hold_the_mean",
    ),
    Mutant(
        "decision: the loss is read with the true class in the column",
        "bmsvm.prediction.uncertainty:decide",
        "probabilities @ loss",
        "probabilities @ loss.T",
        "test_predictive.py smallest_expected_loss",
    ),
    Mutant(
        "model file: the digest leaves out the values of the arrays",
        "bmsvm.persistence:_digest",
        "digest.update(little.reshape(-1).view(np.uint8).data)",
        "None",
        "test_persistence_mutation.py flipped_bit",
    ),
    Mutant(
        "checkpoint: the record counts the draws before they are written",
        "bmsvm.checkpoint:Checkpoint.commit",
        """
        if piece:
            self._append(piece, before.draws)
        self._write_record(state, after)
        """,
        """
        self._write_record(state, after)
        if piece:
            self._append(piece, before.draws)
        """,
        "test_checkpoint_crash.py every_moment",
    ),
    Mutant(
        "R-hat: chains and draws swapped",
        f"{CONVERGENCE}:diagnose",
        "_r_hats(values)",
        "_r_hats(values.swapaxes(0, 1))",
        "test_convergence.py chains_and_draws",
    ),
    Mutant(
        "R-hat: chains joined to one",
        f"{CONVERGENCE}:diagnose",
        "_r_hats(values)",
        "_r_hats(values.reshape(1, -1, len(names)))",
        "test_convergence.py chains_and_draws",
    ),
    Mutant(
        "effective size: not capped",
        f"{CONVERGENCE}:_sizes",
        'np.asarray(arviz.ess(data)["x"])',
        'np.asarray(__import__("numpyro").diagnostics.effective_sample_size(_two_chains(values)))',
        "test_convergence.py anticorrelated",
    ),
    Mutant(
        "enough draws: R-hat not looked at",
        f"{CONVERGENCE}:enough_draws",
        "np.max(_r_hats(values)) > GOOD_R_HAT",
        "False",
        "test_budget.py different_places",
    ),
    Mutant(
        "enough draws: dependence not looked at",
        f"{CONVERGENCE}:enough_draws",
        "np.min(_sizes(values)) < GOOD_ESS",
        "False",
        "test_budget.py strongly_dependent",
    ),
    Mutant(
        "enough draws: error of probabilities not looked at",
        f"{CONVERGENCE}:enough_draws",
        "GOOD_ERROR * np.sqrt(sizes)",
        "np.inf * np.sqrt(sizes)",
        "test_budget.py monte_carlo_error",
    ),
    Mutant(
        "enough draws: a tau that is held counts",
        "bmsvm.models.hierarchy:holds_precision",
        "float(problem.hyper.precision_shape) > weights",
        "float(problem.hyper.precision_shape) > 1e9 * weights",
        "test_budget.py prior_holds",
    ),
    Mutant(
        "mode-cv: a side ends too soon",
        "bmsvm.selection.modes:ModeCV.choose",
        "log_weights.max() - NEGLIGIBLE",
        "log_weights.max() - 0.1",
        "test_modes.py no_weight",
    ),
    Mutant(
        "classifier: rows of weight zero for the paper's sampler too",
        "bmsvm.classifier:BMSVMClassifier._spare_rows",
        "isinstance(as_sampler(self.sampler), Paper)",
        "False",
        "test_classifier_prediction.py moves_by_the_printed_ratio",
    ),
    Mutant(
        "squares-cv: the row's own label is not left out",
        "bmsvm.prediction.squares:_solutions",
        "squared.without_own_label(mean, variance, codes, weights)",
        "(mean, variance)",
        "test_squared_classifier.py against_refitting",
    ),
    Mutant(
        "calibration: sharpening has the weak prior of flattening",
        f"{CALIBRATION}:calibration_loss",
        "[SHARPENED, *scales[1:]]",
        "scales",
        "test_calibration.py minus_the_log_score",
    ),
    Mutant(
        "calibration: flattened draws scatter as the others do",
        f"{CALIBRATION}:calibration_loss",
        "SPREAD_BY_POWER * below",
        "0.0",
        "test_calibration.py minus_the_log_score",
    ),
    Mutant(
        "kernel: the worse one is chosen",
        "bmsvm.selection.kernel:best_kernel",
        "np.argmax(scores)",
        "np.argmin(scores)",
        "test_kernel_choice.py suits_is_chosen",
    ),
    Mutant(
        "kernel: squares-cv takes the lengthscale of the first kernel",
        "bmsvm.selection.squares_cv:SquaresCV.choose",
        "judged[best].lengthscale",
        "judged[0].lengthscale",
        "test_kernel_choice.py suits_is_chosen",
    ),
    Mutant(
        "kernel: the score is that of the best pair alone",
        "bmsvm.prediction.squares:judge",
        "scipy.special.logsumexp(found.scores)",
        "np.max(found.scores)",
        "test_kernel_choice.py is_that_of_refitting",
    ),
    Mutant(
        "kernel: every lengthscale starts from Euclidean distances",
        "bmsvm.kernels.functions:median_distance",
        "kernel.metric if isinstance(kernel, Stationary) else Stationary.metric",
        "Stationary.metric",
        "test_kernel_choice.py median_distance",
    ),
    Mutant(
        "kernel: least squares of two kernels are evaluated with the first",
        "bmsvm.prediction.squares:least_squares",
        "tuple(found.kernels[g] for g in counted)",
        "tuple(found.kernels[0] for g in counted)",
        "test_kernel_choice.py averaged_over_both",
    ),
    Mutant(
        "defaults: classes do not count in the size of chains",
        "bmsvm._defaults:settings_of",
        "n_rows**2 * (n_classes - 1)",
        "4 * n_rows**2",
        "test_defaults.py need_no_chain",
    ),
    Mutant(
        "logistic modes: coefficients of an exact Gram matrix are those of its eigenvectors",
        "bmsvm.prediction.squares:Root.to_design",
        "self.factor.basis * inverse_root(self.factor.eigenvalues)",
        "self.factor.basis",
        "test_logistic_mode.py exact_gram_matrix",
    ),
    Mutant(
        "logistic modes: held-out rows are seen",
        "bmsvm.prediction.logistic:logistic_modes",
        "seen[held, fold_of] = 0.0",
        "seen[held, fold_of] = 1.0",
        "test_logistic_mode.py not_seen",
    ),
    Mutant(
        "logistic modes: a fold too few",
        "bmsvm.prediction.logistic:logistic_modes",
        "int(np.ceil(len(held) / (LARGEST_FOLD * n)))",
        "1",
        "test_logistic_mode.py not_seen",
    ),
    Mutant(
        "logistic modes: averaged in equal parts",
        "bmsvm.prediction.logistic:averaged",
        "float(scipy.special.expit(modes.score - best_power(logs, labels, weights)[1]))",
        "0.5",
        "test_logistic_mode.py follows_the_scores",
    ),
    Mutant(
        "slice: the interval does not shrink on the left",
        "bmsvm.inference.slice:slice_step",
        "jnp.where(proposal < x, proposal, left)",
        "jnp.where(proposal < x, left, proposal)",
        "test_slice.py slice_step",
    ),
    Mutant(
        "adaptation: scales of a chain alone",
        "bmsvm.inference.adaptation:_added",
        "phase.pooled((x - m) ** 2)",
        "(x - m) ** 2",
        "test_adaptation.py scales_are",
    ),
    Mutant(
        "adaptation: arithmetic mean of acceptance",
        "bmsvm.inference.adaptation:Phase.pooled_acceptance",
        "jnp.exp(self.pooled(jnp.maximum(jnp.log(probability), smallest)))",
        "self.pooled(probability)",
        "test_adaptation.py accepts_nothing",
    ),
    Mutant(
        "R-hat: limit of one quantity for all",
        f"{CONVERGENCE}:largest_r_hat",
        "2 * max(num_quantities, 1)",
        "2",
        "test_convergence.py limit_of_r_hat",
    ),
    Mutant(
        "acceptance: mean of all chains",
        f"{CONVERGENCE}:sampler_checks",
        "float(accepted.min())",
        "float(accepted.mean())",
        "test_convergence.py hardly_moves",
    ),
    Mutant(
        "basis: nothing beyond it counts",
        "bmsvm.prediction.basis_error:probability_error",
        "float(problem.basis_map.error) * n_rows",
        "1e-3 * float(problem.basis_map.error) * n_rows",
        "test_basis_error.py near_the_distance",
    ),
    Mutant(
        "basis: the larger half goes",
        "bmsvm.prediction.basis_error:_larger_half",
        "np.argsort(values)",
        "np.argsort(-values)",
        "test_basis_error.py need_nothing",
    ),
    Mutant(
        "starts: all scores at one point",
        "bmsvm.inference.sweep:block_sweep",
        "_start_of_paper if as_in_paper else _overdispersed_start",
        "_start_of_paper",
        "test_starts.py no_two_chains and normalized and sum_to_zero and HMC",
    ),
    Mutant(
        "starts: all chains have one key",
        "bmsvm.inference.run:start_chains",
        "jax.random.split(rng_key, num_chains)",
        "jax.numpy.stack([rng_key] * num_chains)",
        "test_starts.py no_two_chains and normalized and sum_to_zero and HMC",
    ),
    Mutant(
        "squared: sigma2 forgotten in the determinant",
        f"{SQUARED}:cell_at",
        "np.log(information * sigma2 / intercept_precision)",
        "np.log(information / intercept_precision)",
        "test_squared.py evidence_is_the_normal_density",
    ),
    Mutant(
        "squared: variance of the intercept forgotten",
        f"{SQUARED}:functions_at",
        "cell.noise * (rotated**2 @ cell.shrink) + by_intercept**2 / cell.information",
        "cell.noise * (rotated**2 @ cell.shrink)",
        "test_squared.py regression_of_the_codes",
    ),
    Mutant(
        "squared: leave-one-out adds the row again",
        f"{SQUARED}:without_own_label",
        "1 - information * variance",
        "1 + information * variance",
        "test_squared.py leave_one_out_is",
    ),
    Mutant(
        "squared: scores with the variance of the noise",
        f"{SQUARED}:scores_given_functions",
        "noise_variance * (1 - share)",
        "noise_variance * (1 + 0 * share)",
        "test_table.py exact_scores_have",
    ),
    Mutant(
        "squared: one score instead of two moves",
        f"{BLOCKS}.scores:_normal_scores",
        "2 * weights / squared_scale(n_classes) ** 2",
        "weights / squared_scale(n_classes) ** 2",
        "test_table.py exact_scores_have",
    ),
    Mutant(
        "squared: kappa forgotten in the probabilities",
        f"{LIKELIHOODS}:_code_logits",
        "c / (c - 1) / (noise_variance + squared_scale(c) ** 2)",
        "1 / (noise_variance + squared_scale(c) ** 2)",
        "test_table.py probabilities_given_functions",
    ),
    Mutant(
        "squared: half the weight in the integrated likelihood",
        f"{LIKELIHOODS}:log_likelihood_given_functions",
        "(c - 1) * jnp.log(flattened)",
        "jnp.log(flattened)",
        "test_table.py likelihood_given_functions",
    ),
    Mutant(
        "table: Jacobian of log tau forgotten",
        f"{TABLE}:PosteriorTable._density.log_density",
        "shape * log_tau",
        "(shape - 1) * log_tau",
        "test_table.py posterior_by_brute_force",
    ),
    Mutant(
        "table: volume of a cell forgotten",
        f"{TABLE}:PosteriorTable._covered",
        "np.log(self.step**2 * lattice.root[0, 0] * lattice.root[1, 1])",
        "np.log(self.step**2)",
        "test_table.py posterior_by_brute_force",
    ),
    Mutant(
        "table: weights drawn without the scale of the noise",
        f"{TABLE}:_draw_coefficients",
        "np.sqrt(cell.noise * cell.shrink)",
        "np.sqrt(cell.shrink)",
        "test_table.py draws_have_the_moments",
    ),
    Mutant(
        "table: what the basis leaves is not divided by tau",
        f"{TABLE}:RegressionOfCodes.sigma2",
        "self.remainder / tau",
        "self.remainder",
        "test_table.py what_a_basis_leaves",
    ),
    Mutant(
        "table: unequal weights with the information of the noise alone",
        f"{TABLE}:RegressionOfCodes._uneven_moments",
        "x + self.scale2 / self.known",
        "x + self.scale2 * self.known",
        "test_table.py posterior_by_brute_force",
    ),
    Mutant(
        "leave-one-out: cells of the table keep the weight of all labels",
        "bmsvm.prediction.leave_one_out_of_table:_cells_without_labels",
        "np.log(table.cells.probabilities[cells])[:, None] - logs",
        "np.log(table.cells.probabilities[cells])[:, None] - 0 * logs",
        "test_table.py leave_one_out_is_what",
    ),
    Mutant(
        "least squares: penalty of the intercept in other units",
        "bmsvm.machines.least_squares:LeastSquaresSVM.fit_gram",
        "ones.sum() + kappa / gamma",
        "ones.sum() + kappa",
        "test_least_squares.py textbook_equations",
    ),
    Mutant(
        "model file: the digest is not compared",
        f"{PERSISTENCE}:_read",
        '_digest(metadata["bmsvm"], arrays) != metadata.get("sha256")',
        "False",
        "test_persistence_mutation.py flipped_bit",
    ),
    Mutant(
        "model file: files of any version are read",
        f"{PERSISTENCE}:_parsed",
        "found != FORMAT_VERSION",
        "False",
        "test_persistence_refusal.py other_versions",
    ),
    Mutant(
        "model file: files of later versions are read",
        f"{PERSISTENCE}:_parsed",
        "found != FORMAT_VERSION",
        "isinstance(found, int) and found < FORMAT_VERSION",
        "test_persistence_refusal.py other_versions",
    ),
    Mutant(
        "model file: any document is a model",
        f"{PERSISTENCE}:_parsed",
        'document.get("format") != FORMAT',
        "False",
        "test_persistence_refusal.py another_format",
    ),
    Mutant(
        "model file: shapes of arrays are not compared",
        f"{PERSISTENCE}:_model",
        "_check_axes(model)",
        "None",
        "test_persistence_refusal.py signed_arrays",
    ),
    Mutant(
        "encoding: types of fields are not checked",
        f"{ENCODING}:check_fields",
        "not _is_instance(value, expected[name])",
        "False",
        "test_persistence_refusal.py signed_file",
    ),
    Mutant(
        "encoding: an array is used as often as the document says",
        f"{ENCODING}:_taken",
        "arrays.pop(name, None)",
        "arrays.get(name)",
        "test_persistence_values.py short_file",
    ),
    Mutant(
        "encoding: tensors of any type are taken",
        f"{ENCODING}:_taken",
        "array is None or array.dtype.name not in NUMBERS",
        "array is None",
        "test_persistence_values.py not_of_numbers",
    ),
    Mutant(
        "encoding: strings have any code points",
        f"{ENCODING}:_text",
        "np.any(codes > 0x10FFFF)",
        "False",
        "test_persistence_refusal.py signed",
    ),
    Mutant(
        "files: the old file is removed before the new one has its name",
        f"{CHECKPOINT}:replacing",
        "os.replace(temporary, target)",
        "(target.unlink(missing_ok=True), os.rename(temporary, target))",
        "test_persistence_crash.py killed_save",
    ),
    Mutant(
        "files: the new file has its name before it is on the disk",
        f"{CHECKPOINT}:replacing",
        "os.fsync(file.fileno())",
        "None",
        "test_persistence_crash.py save",
    ),
    Mutant(
        "checkpoint: records of any version are read",
        f"{CHECKPOINT}:_read_record",
        "found != (FORMAT, FORMAT_VERSION)",
        "found[0] != FORMAT",
        "test_checkpoint.py another_version",
    ),
    Mutant(
        "checkpoint: a state of other shapes is resumed",
        f"{CHECKPOINT}:_from_numpy",
        "(array.shape, array.dtype) != (expected.shape, expected.dtype)",
        "array.dtype != expected.dtype",
        "test_checkpoint.py state",
    ),
    Mutant(
        "checkpoint: a state of another precision is resumed",
        f"{CHECKPOINT}:_from_numpy",
        "(array.shape, array.dtype) != (expected.shape, expected.dtype)",
        "array.shape != expected.shape",
        "test_checkpoint.py state",
    ),
    Mutant(
        "checkpoint: a run with other settings is resumed",
        f"{CHECKPOINT}:Checkpoint.last",
        "(theirs := fingerprint.get(name)) != ours",
        "(theirs := fingerprint.get(name)) is None",
        "test_checkpoint.py another_run",
    ),
)
