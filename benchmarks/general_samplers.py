"""General samplers of a density: NumPyro's NUTS, BlackJAX's ChEES-HMC and adjusted microcanonical.

Each is a warm-up and a draw of vectorised chains, compiled ahead of time, so that compilation,
warm-up and sampling are timed apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from numpyro.infer import NUTS

Density = Callable[[Any], jax.Array]

STEP_SIZE = 0.1
"""First step size of ChEES-HMC."""

LEARNING_RATE = 0.025
"""Learning rate of the trajectory length of ChEES-HMC."""

MICROCANONICAL_STEPS = 8.0
"""Mean steps of a microcanonical trajectory, two gradients each; BlackJAX's default is 2."""

MICROCANONICAL_ACCEPTANCE = 0.8

MICROCANONICAL_THINNING = 2
"""Microcanonical trajectories for each draw, which are short."""


class Sampler(NamedTuple):
    """A general sampler.

    warm_up
        From a key and starting points, with a leading axis of chains, to the state of the chains.
    draw
        From a state to the next one, the position of each chain, and its gradients (chain,).
    """

    warm_up: Callable[[jax.Array, Any], Any]
    draw: Callable[[Any], tuple[Any, Any, jax.Array]]


def nuts(density: Density, chains: int, num_warmup: int) -> Sampler:
    """NUTS with a diagonal mass and a target of 0.8, NumPyro's defaults."""
    kernel = NUTS(potential_fn=lambda at: -density(at))

    def warm_up(key, positions):
        keys = jax.random.split(key, chains)
        state = kernel.init(keys, num_warmup, positions, (), {})
        return jax.lax.fori_loop(0, num_warmup, lambda _, s: kernel.sample(s, (), {}), state)

    def draw(state):
        state = kernel.sample(state, (), {})
        return state, state.z, state.num_steps

    return Sampler(warm_up, draw)


def chees(density: Density, chains: int, num_warmup: int, *, diagonal: bool = True) -> Sampler:
    """ChEES-HMC: one step size and one length, learned by all chains; a diagonal mass if asked."""
    import blackjax
    import optax

    functions: dict[str, Any] = {}  # what is no array, found when the warm-up is traced

    def flat_density(at):
        return density(functions["unravel"](at))

    def warm_up(key, positions):
        _, functions["unravel"] = ravel_pytree(jax.tree.map(lambda x: x[0], positions))
        positions = jax.vmap(lambda at: ravel_pytree(at)[0])(positions)
        adaptation = blackjax.chees_adaptation(
            flat_density,
            chains,
            mass_matrix_estimation="diagonal" if diagonal else None,
            adaptation_info_fn=lambda *_: None,
        )
        key, key_warm_up = jax.random.split(key)
        (states, found), _ = adaptation.run(
            key_warm_up,
            positions,
            STEP_SIZE,
            optax.adam(LEARNING_RATE),
            num_warmup,
            max_sampling_steps=100_000,
        )
        functions["kernel"] = {name: f for name, f in found.items() if callable(f)}
        return states, {name: x for name, x in found.items() if not callable(x)}, key

    def draw(carry):
        states, arrays, key = carry
        key, key_draw = jax.random.split(key)
        kernel = blackjax.dynamic_hmc(flat_density, **arrays, **functions["kernel"]).step
        states, info = jax.vmap(kernel)(jax.random.split(key_draw, chains), states)
        position = jax.vmap(functions["unravel"])(states.position)
        return (states, arrays, key), position, info.num_integration_steps

    return Sampler(warm_up, draw)


def microcanonical(density: Density, chains: int, num_warmup: int) -> Sampler:
    """Adjusted microcanonical sampler, in coordinates that a warm-up of ChEES-HMC has scaled.

    The tuning of BlackJAX has one chain, and learns poor scales before that chain has converged.
    Step size and length are those that one chain then learns.
    """
    from blackjax.adaptation.adjusted_mclmc_adaptation import adjusted_mclmc_find_L_and_step_size
    from blackjax.mcmc import adjusted_mclmc_dynamic as dynamic

    kernel = dynamic.build_kernel(
        integration_steps_fn=dynamic.make_random_trajectory_length_fn(True)
    )
    before = chees(density, chains, num_warmup)
    unravel: dict[str, Any] = {}

    def scaled_density(scales):
        return lambda at: density(unravel["function"](scales * at))

    def step(key, state, scales, parameters):
        return kernel(
            key,
            state,
            scaled_density(scales),
            parameters.step_size,
            integration_steps_params=(parameters.L / parameters.step_size,),
        )

    def warm_up(key, positions):
        _, unravel["function"] = ravel_pytree(jax.tree.map(lambda x: x[0], positions))
        key, key_scales, key_tune, key_length = jax.random.split(key, 4)
        found, arrays, _ = before.warm_up(key_scales, positions)
        scales = jnp.sqrt(arrays["inverse_mass_matrix"])
        own = scaled_density(scales)
        # One key of lengths for all chains: none waits for a longer trajectory of another.
        states = jax.vmap(lambda at: dynamic.init(at / scales, own, key_length))(found.position)
        _, parameters, _ = adjusted_mclmc_find_L_and_step_size(
            mclmc_kernel=kernel,
            logdensity_fn=own,
            num_steps=num_warmup,
            state=jax.tree.map(lambda x: x[0], states),
            rng_key=key_tune,
            target=MICROCANONICAL_ACCEPTANCE,
            frac_tune1=0.5,
            frac_tune2=0.5,
            diagonal_preconditioning=False,
            target_num_integration_steps=MICROCANONICAL_STEPS,
        )
        return states, scales, parameters, key

    def draw(carry):
        states, scales, parameters, key = carry
        key, key_draw = jax.random.split(key)

        def move(i, carry):
            states, gradients = carry
            keys = jax.random.split(jax.random.fold_in(key_draw, i), chains)
            states, info = jax.vmap(lambda k, s: step(k, s, scales, parameters))(keys, states)
            # McLachlan's integrator has two gradients a step.
            return states, gradients + 2 * info.num_integration_steps

        none = jnp.zeros(chains, jnp.int32)
        states, gradients = jax.lax.fori_loop(0, MICROCANONICAL_THINNING, move, (states, none))
        position = jax.vmap(lambda at: unravel["function"](scales * at))(states.position)
        return (states, scales, parameters, key), position, gradients

    return Sampler(warm_up, draw)


BUILDERS: dict[str, Callable[[Density, int, int], Sampler]] = {
    "nuts": nuts,
    "chees": chees,
    "microcanonical": microcanonical,
}


def compiled(sampler: Sampler, key: jax.Array, positions: Any, draws: int):
    """Compile warm-up, and a chunk: ``state -> (state, (draws, gradients))``."""

    def chunk(state):
        def one(state, _):
            state, position, gradients = sampler.draw(state)
            return state, (position, gradients)

        return jax.lax.scan(one, state, length=draws)

    warm_up = jax.jit(sampler.warm_up).lower(key, positions).compile()
    like = jax.eval_shape(sampler.warm_up, key, positions)
    return warm_up, jax.jit(chunk).lower(like).compile()


def by_chain(draws: Any) -> Any:
    """From (draw, chain, ...) to (chain, draw, ...)."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), draws)
