"""When do jumps and durations of their own pay? Three switching models, fitted to data from two of them.

Paths are simulated and seen with noise, so there are no networks: the potentials are the exact likelihood.
Each model starts from the same AR-HMM, its parameters are found by variational Bayes (the prior, plus what
d energy / d theta adds up over all sequences), and the score is the bound on the evidence of new sequences.

    python benchmarks/durations_and_jumps.py
"""

import argparse
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from svae.arhmm import Effort
from svae.expfam import ParameterPosterior, add
from svae.meanfield import CoordinateAscent
from svae.pgm import SLDS, GraphicalModel, JumpingSLDS, SemiMarkovSLDS
from svae.training.initialise import fit_dynamics, innovation_of, parameters_from_arhmm

MODELS = {"slds": SLDS, "jslds": JumpingSLDS, "hsmm-slds": SemiMarkovSLDS}
STATES, SIZE = 3, 2
SPARE = 1  # states that models have beyond those; to the AR-HMM, jumps are a state
ROUNDS = 30
SOLVER = CoordinateAscent(50, 1e-3)


class Data(NamedTuple):
    """Sequences as they are seen, and the true state of each step."""

    seen: np.ndarray
    states: np.ndarray


def turning(angle: float) -> np.ndarray:
    """A rotation, a little inwards."""
    return 0.98 * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def semi_markov(rng: np.random.Generator, count: int, steps: int, noise: float) -> Data:
    """Three ways to turn; a state lasts 12 steps, give or take 3."""
    matrices = [turning(angle) for angle in (-0.4, 0.0, 0.4)]
    z, states = np.zeros((count, steps, SIZE)), np.zeros((count, steps), int)
    for i in range(count):
        z[i, 0], k, left = rng.normal(size=SIZE), rng.integers(STATES), 0
        for t in range(1, steps):
            if left == 0:
                k, left = (k + rng.integers(1, STATES)) % STATES, 1 + rng.negative_binomial(60, 60 / 71)
            z[i, t] = matrices[k] @ z[i, t - 1] + 0.25 * rng.normal(size=SIZE)
            states[i, t], left = k, left - 1
    return Data(z + noise * rng.normal(size=z.shape), states)


def jumping(rng: np.random.Generator, count: int, steps: int, noise: float) -> Data:
    """Each state goes around slowly, and begins at a place of its own, wherever the path was."""
    matrices = [turning(angle) for angle in (-0.3, 0.1, 0.3)]
    places = 3 * np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    z, states = np.zeros((count, steps, SIZE)), np.zeros((count, steps), int)
    for i in range(count):
        states[i, 0] = k = rng.integers(STATES)
        z[i, 0] = places[k] + 0.1 * rng.normal(size=SIZE)
        for t in range(1, steps):
            jumps = rng.random() < 0.1
            k = (k + rng.integers(1, STATES)) % STATES if jumps else k
            z[i, t] = (places[k] if jumps else matrices[k] @ z[i, t - 1]) + 0.1 * rng.normal(size=SIZE)
            states[i, t] = k
    return Data(z + noise * rng.normal(size=z.shape), states)


@eqx.filter_jit
def infer(model: GraphicalModel, natural, seen, noise: float):
    """Bounds, what they add to the parameters, and the most likely states."""
    stats = model.family.expected_stats(natural)
    posterior = ParameterPosterior(natural, stats, jnp.zeros(()), stats)
    precision = jnp.full(seen.shape[1:], noise**-2)

    def one(x):
        inference = model.infer(posterior, model.potentials(precision * x, precision), solver=SOLVER)
        constant = -0.5 * jnp.sum(x**2) / noise**2 - x.size / 2 * jnp.log(2 * jnp.pi * noise**2)
        added = jax.grad(model.energy)(stats, inference.solution.stats, None)
        return inference.surrogate + constant, added, model.most_likely_states(inference.solution)

    bounds, added, states = jax.vmap(one)(seen)
    return bounds, jax.tree.map(lambda x: jnp.sum(x, axis=0), added), states


def fit(name: str, train: Data, noise: float, rounds: int = ROUNDS):
    """The model and the natural parameters of its posterior."""
    series = list(train.seen)
    model = MODELS[name](STATES + SPARE, SIZE, stay=10.0, innovation=innovation_of(series))
    found = fit_dynamics(model, series, effort=Effort(20))
    natural = model.family.natural_from_standard(parameters_from_arhmm(model, found, series))
    for _ in range(rounds):
        natural = add(model.prior(), infer(model, natural, jnp.asarray(train.seen, jnp.float32), noise)[1])
    return model, natural


def durations(states: np.ndarray) -> np.ndarray:
    """Of all segments but the first and last of each sequence."""
    cuts = [np.flatnonzero(np.diff(path)) for path in states]
    return np.concatenate([np.diff(x) for x in cuts])


def agreement(found: np.ndarray, truth: np.ndarray) -> float:
    """Share of steps in the right state, with the best names; the first step has none."""
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((STATES + SPARE, STATES))
    np.add.at(table, (found[:, 1:].ravel(), truth[:, 1:].ravel()), 1)
    return table[linear_sum_assignment(-table)].sum() / table.sum()


def compare(
    make, noise: float, count: int = 40, steps: int = 150, rounds: int = ROUNDS, seed: int = 0
) -> dict:
    """Of each model: bound per step of new sequences, share of right states, and generated durations."""
    rng = np.random.default_rng(seed)
    train, test = make(rng, count, steps, noise), make(rng, count, steps, noise)
    rows = {}
    for name in MODELS:
        model, natural = fit(name, train, noise, rounds)
        bounds, _, states = infer(model, natural, jnp.asarray(test.seen, jnp.float32), noise)
        parameters = model.family.sample(jax.random.key(seed), natural)
        drawn = jax.vmap(lambda key: model.generate(key, parameters, 400))(
            jax.random.split(jax.random.key(1), 20)
        )
        lasting = durations(np.asarray(model.frame_states(drawn[1])))
        rows[name] = {
            "bound": float(jnp.mean(bounds)) / steps,
            "right": agreement(np.asarray(states), test.states),
            "mean": lasting.mean(),
            "sd": lasting.std(),
        }
    true = durations(test.states)
    rows["truth"] = {"bound": np.nan, "right": 1.0, "mean": true.mean(), "sd": true.std()}
    return rows


SYSTEMS = {"semi-Markov": (semi_markov, 0.3), "jumping": (jumping, 0.1)}


def main() -> None:
    """Print a table for each system."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    for seed in range(parser.parse_args().seeds):
        for system, (make, noise) in SYSTEMS.items():
            print(
                f"\nA {system} system, seed {seed}: nats per step, right states, duration and its deviation"
            )
            for name, row in compare(make, noise, seed=seed).items():
                print(
                    f"{name:10s} {row['bound']:8.3f} {row['right']:6.1%} {row['mean']:6.1f} {row['sd']:6.1f}"
                )


if __name__ == "__main__":
    main()
