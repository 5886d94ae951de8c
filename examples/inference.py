"""Inference alone: the hidden states and the path of a known switching system, from noisy, gappy data.

`python examples/inference.py` draws them, and how far different starts of coordinate ascent come.
"""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from svae import plots
from svae.chains import DiscreteChainTerms
from svae.expfam import GaussianParameters, LinearGaussian, fixed_parameters
from svae.meanfield import CoordinateAscent, objective_per_sweep
from svae.pgm import SLDS, SLDSGlobals

NOISE = 0.15  # standard deviation of the observations
NUM_SWEEPS = 20


class Recording(NamedTuple):
    """A simulated sequence, with the truth behind it."""

    path: Float[Array, "time 2"]
    states: Int[Array, "time_minus_1"]
    data: Float[Array, "time 2"]
    observed: Bool[Array, "time"]


def four_gaits() -> SLDSGlobals:
    """Spiralling left or right, slowly or fast, towards four centres."""
    angles = jnp.array([0.15, -0.15, 0.5, -0.5])
    centres = 1.5 * jnp.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    turns = 0.97 * jnp.stack([jnp.stack([cos, -sin], -1), jnp.stack([sin, cos], -1)], axis=1)
    offsets = centres - jnp.einsum("kij,kj->ki", turns, centres)
    weights = jnp.concatenate([turns, offsets[:, :, None]], axis=2)
    noise = jnp.broadcast_to(0.05**2 * jnp.eye(2), (4, 2, 2))
    initial = GaussianParameters(jnp.zeros(2), jnp.eye(2))
    transition = 0.95 * jnp.eye(4) + 0.01
    transition = transition / jnp.sum(transition, axis=1, keepdims=True)
    return SLDSGlobals(initial, LinearGaussian(weights, noise), jnp.ones(4) / 4, transition)


def simulate(model: SLDS, parameters: SLDSGlobals, seed: int, num_steps: int) -> Recording:
    """Noisy positions, with a stretch lost."""
    path_key, noise_key = jax.random.split(jax.random.key(seed))
    path, states = model.generate(path_key, parameters, num_steps)
    data = path + NOISE * jax.random.normal(noise_key, path.shape)
    steps = jnp.arange(num_steps)
    lost = (steps >= 0.45 * num_steps) & (steps < 0.48 * num_steps)
    return Recording(path, states, data, ~lost)


def random_start(key: Array, start: tuple) -> tuple:
    """State probabilities drawn at random instead of read off the potentials."""
    z, k = start
    concentration = jnp.full(k.node.shape[1:], 0.1)
    return z, DiscreteChainTerms(jax.random.dirichlet(key, concentration, k.node.shape[:1]), k.transition)


def run(out: Path, seed: int = 3, num_steps: int = 300) -> dict[str, Any]:
    """Simulate, infer, draw; returns and writes the summary.

    In double precision, so that the objective can be seen to rise to the last digit.
    """
    with jax.enable_x64(True):
        return _run(out, seed, num_steps)


def _run(out: Path, seed: int, num_steps: int) -> dict[str, Any]:
    began = time.perf_counter()
    model, parameters = SLDS(num_states=4, latent_dim=2), four_gaits()
    recording = simulate(model, parameters, seed, num_steps)
    precision = jnp.full_like(recording.data, 1 / NOISE**2)
    potentials = model.potentials(precision * recording.data, precision, recording.observed)
    posterior = fixed_parameters(model.family, parameters)
    solver = CoordinateAscent(max_sweeps=100)
    inference = jax.jit(lambda p: model.infer(posterior, p, solver=solver))(potentials)
    z, k = inference.solution.stats

    start = model.start(posterior.stats, potentials, None)
    curve = lambda start: objective_per_sweep(model.problem(), posterior.stats, potentials, start, NUM_SWEEPS)
    curves = jax.jit(jax.vmap(lambda key: curve(random_start(key, start))))(
        jax.random.split(jax.random.key(seed + 1), 5)
    )
    figure = plots.inference_figure(
        data=recording.data,
        observed=recording.observed,
        truth=recording.path,
        mean=z.first,
        deviation=_deviations(z),
        true_states=recording.states,
        state_probabilities=k.node,
        objectives={"start from the data": jax.jit(curve)(start), "random starts": curves},
    )
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "posterior.png", dpi=130)

    summary = {
        "accuracy": float(jnp.mean(jnp.argmax(k.node, axis=1) == recording.states)),
        "rmse": float(jnp.sqrt(jnp.mean((z.first - recording.path) ** 2))),
        "coverage": float(jnp.mean(jnp.abs(z.first - recording.path) < 2 * _deviations(z))),
        "objective": float(inference.surrogate),
        "sweeps": int(inference.solution.sweeps),
        "converged": bool(inference.solution.converged),
        "seconds": round(time.perf_counter() - began, 2),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def _deviations(z) -> Float[Array, "time 2"]:
    variance = jnp.diagonal(z.second, axis1=1, axis2=2) - z.first**2
    return jnp.sqrt(jnp.asarray(np.maximum(variance, 0)))


if __name__ == "__main__":
    print(json.dumps(run(Path("runs/inference")), indent=2))
