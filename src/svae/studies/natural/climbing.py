"""Learning the dynamics between frozen networks, by each method."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from svae.config import make_config
from svae.data import Recordings
from svae.expfam import Terms
from svae.models import SVAE, Batch
from svae.studies.natural.setting import METHODS, RATES, Case, Method, Setting, checkpoints
from svae.training.pipeline import fit, training_batch
from svae.training.step import begin, make_optimiser, take_steps

DRAWS = 4  # of the latent paths, in an evaluation

Curves = Float[np.ndarray, "seeds rates checks"]


def curves_of(
    name: str, case: Case, recordings: Recordings, setting: Setting, say: Callable[[str], None]
) -> dict[str, Curves]:
    """One case: all methods, seeds and step sizes."""
    checks = checkpoints(setting)
    curves: dict[str, list] = {title: [] for title in METHODS}
    for seed in range(setting.seeds):
        model, data = frozen_networks(case, recordings, setting, seed)
        for title, method in METHODS.items():
            path = climb(model, data, jax.random.key(seed), method, setting.steps, setting.batch)
            curves[title].append(bounds(model, data, jax.tree.map(lambda x: x[:, checks], path)))
            say(f"{name}, seed {seed}, {title}: up to {jnp.max(curves[title][-1]):.2f} nats per sequence")
    return {title: np.stack(own).astype(float) for title, own in curves.items()}


def frozen_networks(case: Case, recordings: Recordings, setting: Setting, seed: int) -> tuple[SVAE, Batch]:
    """A model after the first stage of training, with the generic first guess of its dynamics."""
    config = make_config(
        {
            "data": {"window": setting.window},
            "model": {"graph": "lds", "latent_dim": case.latent_dim, "hidden": list(setting.hidden)},
            "pretrain": {"steps": case.pretraining},
            "dynamics": {"sequences": 0},
            "joint": {"steps": 0},
            "batch_size": setting.batch,
            "seed": seed,
        }
    )
    fitted = fit(recordings, config)
    assert isinstance(fitted.model, SVAE)
    return fitted.model, training_batch(recordings.map(fitted.standardizer.apply), config)


@eqx.filter_jit
def climb(model: SVAE, data: Batch, key: PRNGKeyArray, method: Method, steps: int, batch_size: int) -> Terms:
    """The parameters of q(theta) before the first step and after each, for each step size."""
    count = data.values.shape[0]
    model = replace(model, rule=method.rule)
    still = optax.set_to_zero()

    def with_rate(rate: Float[Array, ""]) -> Terms:
        graph = method.optimiser(model.pgm.family, rate, float(count))
        optimiser = make_optimiser(still, still, graph)
        arrays, rest = eqx.partition(begin(model, optimiser), eqx.is_array)

        def one(arrays: Any, _: None) -> tuple[Any, Terms]:
            state = eqx.combine(arrays, rest)
            moved = take_steps(state, data, key, optimiser, min(batch_size, count), 1)[0]
            return eqx.filter(moved, eqx.is_array), state.model.parameters

        return lax.scan(one, arrays, None, length=steps + 1)[1]

    return lax.map(with_rate, jnp.asarray(RATES))


@eqx.filter_jit
def bounds(model: SVAE, data: Batch, parameters: Terms) -> Float[Array, "rates checks"]:
    """Of all data, in nats per sequence, with each of the parameters in place of the model's own."""
    draws = jax.random.split(jax.random.key(0), DRAWS)

    def one(parameters: Terms) -> Float[Array, ""]:
        here = replace(model, parameters=parameters)
        elbo = lambda draw: here.elbo(draw, data).elbo(data.values.shape[0])
        return jnp.mean(jax.vmap(elbo)(draws))

    return lax.map(lambda own: lax.map(one, own), parameters)
