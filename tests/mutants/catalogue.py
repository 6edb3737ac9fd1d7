"""The mutants: one wrong line each, with the tests that are to fail because of it."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """A wrong line.

    name
        What is wrong.
    file
        Where, inside ``bmsvm``.
    right, wrong
        Text that occurs once there, and what is put in its place.
    tests
        File of tests and, after a space, an expression for ``pytest -k``.
    """

    name: str
    file: str
    right: str
    wrong: str
    tests: str


CONDITIONALS = "models/conditionals.py"
HAMILTONIAN = "inference/blocks/hamiltonian.py"
LENGTHSCALE = "inference/blocks/lengthscale.py"
SCORES = "inference/blocks/scores.py"
COLLAPSED = "models/collapsed.py"
LARGE = "inference/blocks/collapsed.py"
FEATURES = "features.py"
PERSISTENCE = "persistence.py"
CHECKPOINT = "checkpoint.py"

MUTANTS = (
    Mutant(
        "noise: shape with nc scores, as printed, instead of n(c-1)",
        CONDITIONALS,
        "    shape = (hyper.noise_shape + problem.n_scores) / 2\n    return dist",
        "    shape = (hyper.noise_shape + problem.n_rows * problem.n_classes) / 2\n    return dist",
        "test_conditionals.py noise_draws_follow",
    ),
    Mutant(
        "precision: shape counts one column only",
        CONDITIONALS,
        "size = problem.rank * problem.n_columns\n",
        "size = problem.rank\n",
        "test_conditionals.py scale_draws_follow",
    ),
    Mutant(
        "weights: sign of the intercept",
        CONDITIONALS,
        "(projection.coordinates - shift)",
        "(projection.coordinates + shift)",
        "test_conditionals.py intercept_and_weights_draws",
    ),
    Mutant(
        "intercept: eta forgotten",
        CONDITIONALS,
        "information = (problem.hyper.intercept_precision + parts.ones_ones)[:, None]",
        "information = parts.ones_ones[:, None]",
        "test_conditionals.py intercept_and_weights_draws",
    ),
    Mutant(
        "scores: sign of the score's own error in its mean",
        CONDITIONALS,
        "(own + here) / 2",
        "(own - here) / 2",
        "test_conditionals.py score_draws_follow",
    ),
    Mutant(
        "scores: twice the variance",
        CONDITIONALS,
        "jnp.sqrt(noise_variance / 2)",
        "jnp.sqrt(noise_variance)",
        "test_conditionals.py score_draws_follow",
    ),
    Mutant(
        "exact scores: right piece not shifted",
        "models/two_piece.py",
        "centre = jnp.where(left, mean, mean - scale * tilt)",
        "centre = jnp.where(left, mean, mean)",
        "test_two_piece.py draw",
    ),
    Mutant(
        "truncated scores: bound of the rising score not halved",
        SCORES,
        "jnp.where(classes == cls, room / 2, room)",
        "room",
        "test_invariance.py block_leaves and truncated",
    ),
    Mutant(
        "Metropolis scores: wrong variance in the prior ratio",
        SCORES,
        "(2 * scale**2)",
        "scale**2",
        "test_invariance.py block_leaves and metropolis",
    ),
    Mutant(
        "scale: Jacobian missing",
        "inference/blocks/scale.py",
        "return likelihood + prior + 2 * log_alpha",
        "return likelihood + prior",
        "test_invariance.py block_leaves and scale",
    ),
    Mutant(
        "interweaving: Jacobian of log tau missing",
        "inference/blocks/interweave.py",
        "log_prob(jnp.exp(log_precision)) + log_precision",
        "log_prob(jnp.exp(log_precision))",
        "test_invariance.py block_leaves and interweave",
    ),
    Mutant(
        "interweaving: weights left where they were",
        "inference/blocks/interweave.py",
        "weights=ratio * position.weights",
        "weights=position.weights",
        "test_invariance.py block_leaves and interweave",
    ),
    Mutant(
        "collapsed tau: Jacobian of log tau missing",
        "inference/blocks/parameters.py",
        "return log_p + log_precision",
        "return log_p",
        "test_invariance.py block_leaves and collapsed",
    ),
    Mutant(
        "momentum: Jacobian of the logarithms missing",
        HAMILTONIAN,
        "+ jnp.sum(coordinates.logs)\n",
        "\n",
        "test_invariance.py block_leaves and hamiltonian",
    ),
    Mutant(
        "momentum: sign of the kinetic energy",
        HAMILTONIAN,
        "kinetic = 0.5 *",
        "kinetic = -0.5 *",
        "test_invariance.py block_leaves and hamiltonian",
    ),
    Mutant(
        "momentum: goes on tuning after warm-up",
        HAMILTONIAN,
        "warming_up = phase.sweep < phase.n_warmup\n",
        "warming_up = phase.sweep >= 0\n",
        "test_presets.py tuning_stands_still",
    ),
    Mutant(
        "whitening: noise that the columns do not determine is not drawn",
        "models/whitening.py",
        "fresh = jax.random.normal(key_outside, grouped.shape, grouped.dtype)",
        "fresh = jnp.zeros(grouped.shape, grouped.dtype)",
        "test_conditionals.py white_coordinates",
    ),
    Mutant(
        "whitening: what lies outside a basis of low rank is drawn anew",
        "models/whitening.py",
        "outside = grouped - _onto_rows(shift, basis)",
        "outside = fresh - _onto_rows(shift, basis)",
        "test_sbc.py ranks_are_uniform and truncated",
    ),
    Mutant(
        "sweep: blocks see the factor of the theta at which chains began",
        "inference/blocks/base.py",
        "        here = problem.at(position.kernel)\n",
        "        here = problem\n",
        "test_lengthscale.py sweep_with_theta",
    ),
    Mutant(
        "theta: parameters drawn with the factor before the move",
        LENGTHSCALE,
        "now = problem.at(position.kernel)\n",
        "now = here\n",
        "test_lengthscale.py moves_of_theta and collapsed",
    ),
    Mutant(
        "theta: Jacobian of tau along the ridge missing",
        LENGTHSCALE,
        "precision_prior(problem).log_prob(precision) + jnp.log(precision)",
        "precision_prior(problem).log_prob(precision)",
        "test_lengthscale.py moves_of_theta and ridge",
    ),
    Mutant(
        "theta: prior forgotten",
        "inference/grid_walk.py",
        "log_prior[proposal] - log_prior[kernel]",
        "0.0",
        "test_lengthscale.py moves_of_theta and grid",
    ),
    Mutant(
        "theta off the grid: Jacobian of the unconstrained parameters missing",
        "models/kernel_parameters.py",
        "return jnp.sum(prior.log_prob(here)) + jnp.sum(jacobian)",
        "return jnp.sum(prior.log_prob(here))",
        "test_lengthscale.py moves_of_theta and feature",
    ),
    Mutant(
        "theta: sign of the determinant of the noisy copies",
        "models/whitening.py",
        "(explained - columns.coordinates.shape[1] * jnp.sum(log_det))",
        "(explained + columns.coordinates.shape[1] * jnp.sum(log_det))",
        "test_lengthscale.py moves_of_theta and surrogate",
    ),
    Mutant(
        "slice: level too low",
        "inference/slice.py",
        "level = height(x) - jax",
        "level = height(x) - 2 * jax",
        "test_presets.py slice_step_leaves",
    ),
    Mutant(
        "likelihood: weights of rows ignored",
        "models/likelihoods.py",
        "jnp.where(weights > 0, weights * log_likelihoods, 0.0)",
        "jnp.where(weights > 0, log_likelihoods, 0.0)",
        "test_row_weights.py joint_is_the_prior",
    ),
    Mutant(
        "hinge: the row's own class counted too",
        "models/likelihoods.py",
        "return own - excess.sum(0)",
        "return -excess.sum(0)",
        "test_likelihoods.py hinge_sums",
    ),
    Mutant(
        "masked designs: columns see the rows of their own class",
        "models/kernel_parameters.py",
        "mask = (labels[None, :] != np.arange(n_classes)[:, None]).astype(basis.dtype)",
        "mask = (labels[None, :] >= 0 * np.arange(n_classes)[:, None]).astype(basis.dtype)",
        "test_conditionals.py columns_are_normal",
    ),
    Mutant(
        "prediction: variance away from the rows forgotten",
        "inference/predict.py",
        "spread = jnp.sqrt(noise_variance / precision * there.remainder)[:, None]",
        "spread = 0.0 * jnp.sqrt(noise_variance / precision * there.remainder)[:, None]",
        "test_predict.py not nothing",
    ),
    Mutant(
        "low rank: what landmarks leave of a row is told to be nothing",
        FEATURES,
        "np.maximum(own - np.sum(part**2, axis=1), 0.0)",
        "0.0 * own",
        "test_low_rank.py features_of_all_rows",
    ),
    Mutant(
        "low rank: landmarks with the kernel matrix itself and not its inverse root",
        FEATURES,
        "return vectors[:, kept] / np.sqrt(values[kept])",
        "return vectors[:, kept] * np.sqrt(values[kept])",
        "test_low_rank.py features_of_all_rows",
    ),
    Mutant(
        "low rank: waves at frequencies of another lengthscale",
        FEATURES,
        "return normal / lengthscale",
        "return normal / lengthscale**2",
        "test_low_rank.py waves_have",
    ),
    Mutant(
        "low rank: what landmarks leave is not noise of the rows",
        COLLAPSED,
        "return logs[0].astype(dtype) + 0.5 * jnp.log1p(_left(logs, problem))",
        "return logs[0].astype(dtype) + 0.0 * jnp.log1p(_left(logs, problem))",
        "test_low_rank.py what_landmarks_leave",
    ),
    Mutant(
        "low rank: what landmarks leave is told to be nothing where models predict",
        "inference/posterior.py",
        "return inside, np.sqrt(np.maximum(own - np.sum(inside**2, axis=1), 0.0))",
        "return inside, 0.0 * np.sqrt(np.maximum(own - np.sum(inside**2, axis=1), 0.0))",
        "test_low_rank.py predicts_from_landmarks",
    ),
    Mutant(
        "integrated scores: labels ignored where columns are drawn",
        COLLAPSED,
        "merit = log_likelihood(moved.T, problem) + noise",
        "merit = noise",
        "test_low_rank.py leave_exact_draws",
    ),
    Mutant(
        "integrated scores: Jacobian of sigma2 missing",
        COLLAPSED,
        "        + 2 * logs[0]  # d sigma2\n",
        "",
        "test_low_rank.py prior_of_the_coordinates",
    ),
    Mutant(
        "Laplace coordinates: Jacobian missing",
        "models/reference.py",
        "return -jnp.sum(jnp.log(root))",
        "return -0.0 * jnp.sum(jnp.log(root))",
        "test_low_rank.py leave_exact_draws",
    ),
    Mutant(
        "Laplace coordinates: intercept not scaled back",
        COLLAPSED,
        "intercept=reference.intercept_scale * x[:, -1]",
        "intercept=x[:, -1]",
        "test_low_rank.py leave_exact_draws",
    ),
    Mutant(
        "large: sign of the kinetic energy in the Metropolis test",
        LARGE,
        "0.5 * (_square(momentum) - _square(last))",
        "0.5 * (_square(last) - _square(momentum))",
        "test_low_rank.py leave_exact_draws",
    ),
    Mutant(
        "large: everything is accepted",
        LARGE,
        "jax.random.uniform(key_accept, (), dtype) < accept_prob",
        "jax.random.uniform(key_accept, (), dtype) < 2.0",
        "test_low_rank.py leave_exact_draws",
    ),
    Mutant(
        "leave-one-out: what landmarks leave of a row forgotten",
        "inference/loo.py",
        '(1 + left / draw["precision"])',
        '(1 + 0 * left / draw["precision"])',
        "test_loo.py low_rank",
    ),
    Mutant(
        "variational: what landmarks leave of a row forgotten",
        "inference/variational.py",
        "(1 + remainder / precision)",
        "(1 + 0 * remainder / precision)",
        "test_variational.py low_rank_leaves",
    ),
    Mutant(
        "model file: the digest leaves out the values of the arrays",
        PERSISTENCE,
        "        digest.update(little.reshape(-1).view(np.uint8).data)\n",
        "",
        "test_persistence_mutation.py flipped_bit",
    ),
    Mutant(
        "checkpoint: the record counts the draws before they are written",
        CHECKPOINT,
        "            if piece:\n                self._append(piece, before.draws)\n"
        "            self._write_record(state, after)\n",
        "            self._write_record(state, after)\n"
        "            if piece:\n                self._append(piece, before.draws)\n",
        "test_checkpoint_crash.py every_moment",
    ),
)
