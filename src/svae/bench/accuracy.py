r"""What speed costs in accuracy: chains against dense answers, and training against the sequential form.

A chain's dense answers are those of its joint distribution, written out with numpy in double precision:
for the Gaussian chain all T x D variables at once, for the discrete one messages in log space. A whole
gradient step and a short training are compared with the sequential form on a CPU, in a process of its own
(run as a script, this module is that process), in single precision both. Samples differ, as another order
of elimination makes another path of the same noise: what that may do to a training another seed tells.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from svae.bench import table1
from svae.bench.timing import Say, machine
from svae.chains import BATCH, DiscreteChain, DiscreteChainTerms, Form, GaussianChain, GaussianChainTerms
from svae.compiling import often
from svae.config import Config, override
from svae.data import laplacian
from svae.expfam import prior_kl
from svae.models import SVAE, Batch
from svae.training.checkpoint import read_metrics
from svae.training.pipeline import fit

Row = dict[str, Any]

NOISES = 1.0, 1e-2, 1e-4  # variance of a step of the dynamics: the smaller, the worse conditioned
CURVES = "sequential, CPU", "sequential, CPU, another seed"
SEQUENCES = 2  # in the gradient step
TRAINING: tuple[str, ...] = (
    *("model.num_states=6", "model.latent_dim=3", "model.hidden=[32]", "pretrain.steps=0", "chunk=10"),
    *("dynamics.sequences=0", "joint.steps=200", "joint.network_rate=1e-3", "data.window=50"),
)


# Chains, written out


def gaussian_terms(rng: np.random.Generator, time: int, size: int, noise: float) -> GaussianChainTerms:
    """z_t = A z_{t-1} + noise with a rotation A, and potentials as an encoder gives them."""
    a = 0.99 * np.linalg.qr(rng.normal(size=(size, size)))[0]
    own = np.exp(rng.normal(size=(time, size)))
    precision = np.zeros((time, size, size)) + [np.diag(row) for row in own]
    precision[0] += np.eye(size)
    precision[1:] += np.eye(size) / noise
    precision[:-1] += a.T @ a / noise
    cross = np.tile(a.T / noise, (time - 1, 1, 1))
    return GaussianChainTerms._make((own * rng.normal(size=(time, size)), -0.5 * precision, cross))


def gaussian_change(rng: np.random.Generator, like: GaussianChainTerms) -> GaussianChainTerms:
    """Any change of the potentials that keeps symmetric matrices symmetric."""
    first, second, cross = (rng.normal(size=x.shape) for x in like)
    return GaussianChainTerms._make((first, second + np.swapaxes(second, 1, 2), cross))


def dense_gaussian(
    terms: GaussianChainTerms, change: GaussianChainTerms
) -> tuple[GaussianChainTerms, GaussianChainTerms]:
    r"""Expected statistics, and how they answer a change: dS = -S dJ S, dm = S (dh - dJ m)."""
    time, size = terms.first.shape

    def joint(natural: GaussianChainTerms) -> ndarray:
        """-2 times the second-order potentials: the precision."""
        full = np.zeros((time, size, time, size))
        for t in range(time):
            full[t, :, t] = -2 * natural.second[t]
        for t in range(time - 1):
            full[t, :, t + 1], full[t + 1, :, t] = -natural.cross[t], -natural.cross[t].T
        return full.reshape(time * size, time * size)

    covariance = np.linalg.inv(joint(terms))
    mean = covariance @ terms.first.ravel()
    moved = joint(change)
    mean_moved = covariance @ (change.first.ravel() - moved @ mean)
    covariance_moved = -covariance @ moved @ covariance

    def blocks(vector: ndarray, matrix: ndarray) -> GaussianChainTerms:
        apart = matrix.reshape(time, size, time, size)
        own = np.stack([apart[t, :, t] for t in range(time)])
        cross = np.stack([apart[t, :, t + 1] for t in range(time - 1)])
        return GaussianChainTerms._make((vector.reshape(time, size), own, cross))

    second = np.outer(mean, mean)
    second_moved = np.outer(mean_moved, mean) + np.outer(mean, mean_moved)
    return blocks(mean, covariance + second), blocks(mean_moved, covariance_moved + second_moved)


def discrete_terms(rng: np.random.Generator, time: int, size: int) -> DiscreteChainTerms:
    """States that last, and noisy hints."""
    transition = np.log(rng.dirichlet(np.ones(size), size=size) + 20 * np.eye(size))
    return DiscreteChainTerms._make((3 * rng.normal(size=(time, size)), transition))


def discrete_change(rng: np.random.Generator, like: DiscreteChainTerms) -> DiscreteChainTerms:
    """Any."""
    return jax.tree.map(lambda x: rng.normal(size=x.shape), like)


def discrete_marginals(terms: DiscreteChainTerms) -> DiscreteChainTerms:
    """By messages in log space."""
    node, transition = terms
    total = lambda x, axis: np.logaddexp.reduce(x, axis=axis)
    left, right = [node[0]], [np.zeros_like(node[0])]
    for own in node[1:]:
        left.append(own + total(left[-1][:, None] + transition, 0))
    for own in node[:0:-1]:
        right.append(total(transition + own + right[-1], 1))
    right.reverse()
    evidence = total(left[-1], 0)
    marginal = np.exp(np.stack(left) + np.stack(right) - evidence)
    pairs = sum(
        np.exp(left[t][:, None] + transition + node[t + 1] + right[t + 1] - evidence)
        for t in range(len(node) - 1)
    )
    return DiscreteChainTerms._make((marginal, pairs))


def dense_discrete(
    terms: DiscreteChainTerms, change: DiscreteChainTerms, step: float = 1e-4
) -> tuple[DiscreteChainTerms, DiscreteChainTerms]:
    """Marginals, and how they answer a change, by central differences of fourth order."""
    at = lambda by: discrete_marginals(jax.tree.map(lambda x, y: x + by * step * y, terms, change))
    slope = lambda a, b, c, d: (8 * (b - c) - (a - d)) / (12 * step)
    return at(0), jax.tree.map(slope, at(2), at(1), at(-1), at(-2))


def error(found: Any, true: Any) -> float:
    """The largest error of any field, relative to that field's largest value."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(true), strict=True)
    return max(float(np.max(np.abs(np.asarray(x, np.float64) - y)) / np.max(np.abs(y))) for x, y in pairs)


def answers(chain: Any, terms: Any, change: Any) -> tuple[Any, Any]:
    """The chain's own statistics and derivative in single precision, as one sequence of a batch."""
    single = lambda record: jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), record)

    def one(terms, change):
        _, stats, jacobian = chain.linearize(terms)
        return stats, jacobian(change)

    both = jax.tree.map(lambda x: jnp.stack([x, x]), (single(terms), single(change)))
    found = jax.jit(jax.vmap(one, axis_name=BATCH))(*both)
    return jax.tree.map(lambda x: np.asarray(x[1]), found)


def chains(sizes: table1.Sizes, form: Form) -> list[Row]:
    """Both chains against dense answers."""
    rng, time, rows = np.random.default_rng(0), sizes.num_steps, []

    def measure(name: str, chain: Any, terms: Any, change: Any, dense: Callable) -> None:
        # Rounded before, so that both answer the same question
        terms, change = jax.tree.map(lambda x: np.float64(np.float32(x)), (terms, change))
        found, true = answers(chain, terms, change), dense(terms, change)
        rows.append(
            {"what": name, "moments": error(found[0], true[0]), "linearised": error(found[1], true[1])}
        )

    for noise in NOISES:
        terms = gaussian_terms(rng, time, sizes.latent_dim, noise)
        chain, name = GaussianChain(form=form), f"Gaussian chain, noise {noise:g}"
        measure(name, chain, terms, gaussian_change(rng, terms), dense_gaussian)
    states = discrete_terms(rng, time - 1, sizes.num_states)
    measure("discrete chain", DiscreteChain(form=form), states, discrete_change(rng, states), dense_discrete)
    return rows


# Training, against the sequential form


def gradient(sizes: table1.Sizes, form: Form) -> dict[str, ndarray]:
    """Loss and gradient of a whole step, by the name of each array.

    The decoder gets the posterior means: what noise becomes in a sample depends on the order of elimination.
    """
    model_key, data_key = jax.random.split(jax.random.key(0))
    model = table1.make_model(sizes, f"implicit, {form.value}", model_key)
    batch = table1.make_batch(sizes, SEQUENCES, data_key)

    def loss(model: SVAE, batch: Batch) -> Float[Array, ""]:
        posterior = model.posterior()
        inference = model.infer(posterior, batch)
        decoded = model.decoder(inference.solution.stats[0].first)
        likelihood = jnp.sum(model.likelihood.log_density(decoded, batch.filled), axis=(1, 2))
        kl_parameters = prior_kl(model.pgm.family, posterior, model.pgm.prior())
        return jnp.mean(inference.kl_local - likelihood) + kl_parameters

    value, gradient = often(eqx.filter_value_and_grad(loss))(model, batch)
    leaves = jax.tree_util.tree_leaves_with_path(gradient)
    return {"loss": np.asarray(value)} | {jax.tree_util.keystr(path): np.asarray(x) for path, x in leaves}


def curve(form: Form, changes: tuple[str, ...], seed: int = 0) -> ndarray:
    """The bound while a model learns the toy from nothing."""
    config = override(Config(), [*changes, f"model.form={form.value}", f"seed={seed}"])
    with tempfile.TemporaryDirectory() as folder:
        fit(laplacian(16, 100, seed=0), config, Path(folder))
        records = read_metrics(Path(folder) / "metrics.ndjson")
    return np.array([x["elbo"] for x in records])


@contextmanager
def reference(sizes: table1.Sizes, changes: tuple[str, ...]) -> Iterator[Callable[[], dict[str, ndarray]]]:
    """The sequential form's gradient and curve, from a process that has nothing but the CPU.

    It works while others measure; what is yielded waits for it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.npz"
        asked = json.dumps({"sizes": sizes, "changes": changes})
        command = [sys.executable, "-m", __spec__.name, str(path), asked]

        def results() -> dict[str, ndarray]:
            if process.wait() != 0:
                raise subprocess.CalledProcessError(process.returncode, command)
            with np.load(path) as file:
                return dict(file)

        process = subprocess.Popen(command, env=os.environ | {"JAX_PLATFORMS": "cpu"})
        try:
            yield results
        finally:
            process.kill()
            process.wait()


def run(form: Form, sizes: table1.Sizes, changes: tuple[str, ...], say: Say) -> dict[str, Any]:
    """All errors, ready for JSON."""
    rows = []

    def tell(row: Row) -> None:
        rows.append(row)
        say(line(row))

    with reference(sizes, changes) as results:
        for row in chains(sizes, form):
            tell(row)
        found, own_curve = gradient(sizes, form), curve(form, changes)
        true = results()
    curves = {form.value: own_curve, **{name: true.pop(name) for name in CURVES}}
    apart = {name: float(np.linalg.norm(found[name] - x) / np.linalg.norm(x)) for name, x in true.items()}
    tell({"what": "gradient step", "loss": apart.pop("loss"), "gradient": max(apart.values())})
    own, plain, other = (float(x[-1]) for x in curves.values())
    gained = plain - float(curves[CURVES[0]][0])
    tell(
        {
            "what": "bound after training",
            "form": abs(own - plain) / gained,
            "seed": abs(other - plain) / gained,
        }
    )
    return {
        "form": form.value,
        "machine": machine(),
        "rows": rows,
        "gradient": apart,
        "curves": {name: x.tolist() for name, x in curves.items()},
    }


def line(row: Row) -> str:
    """A row as text."""
    numbers = "".join(f"  {name} {value:.1e}" for name, value in row.items() if name != "what")
    return f"{row['what']:<28}{numbers}"


if __name__ == "__main__":
    ASKED = json.loads(sys.argv[2])
    ARRAYS: dict[str, Any] = gradient(table1.Sizes(*ASKED["sizes"]), Form.SEQUENTIAL)
    for SEED, NAME in enumerate(CURVES):
        ARRAYS[NAME] = curve(Form.SEQUENTIAL, tuple(ASKED["changes"]), SEED)
    np.savez(sys.argv[1], **ARRAYS)
