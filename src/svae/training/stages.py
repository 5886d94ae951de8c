"""The stages of training: networks with a simple prior, dynamics found in their latent space, then all.

Networks that know nothing yet give a graphical model nothing to find, and a graphical model that knows
nothing yet drags the networks to one state that explains all. Each stage hands the next one a start from
which it cannot go far wrong; each can be called by itself.
"""

from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from svae.chains import Form
from svae.expfam import MNIWParameters, NIWParameters, ParameterFamily, natural_descent
from svae.models import SVAE, Batch, Model, with_graph
from svae.networks import COLDEST, Gaussian, Residual
from svae.pgm import LDS, LDSGlobals, StandardNormal
from svae.training.step import make_optimiser

SURE = 40.0  # variance of a step, relative to that of potentials which are sure


class Rates(NamedTuple):
    """Step sizes at the start of a stage; all fall to `last` of that along a cosine."""

    network: float = 1e-3
    noise: float = 1e-2
    graph: float = 0.05
    last: float = 0.1


def optimiser_for(model: Model, rates: Rates, steps: int, num_sequences: int) -> optax.GradientTransformation:
    """Adam for the networks, natural-gradient descent for the graphical model, with falling steps.

    The loss is that of one sequence. Multiplied by their number, its natural gradient is the way to the
    posterior that a whole data set like this batch would give; `rates.graph` is the share of it to go
    (with zero, it stays as it is).
    """
    family = model.pgm.family if isinstance(model, SVAE) else None
    return _optimiser(family, rates, steps, num_sequences)


@lru_cache  # for the same numbers the same object, by which a second fit finds its programs compiled
def _optimiser(
    family: ParameterFamily | None, rates: Rates, steps: int, num_sequences: int
) -> optax.GradientTransformation:
    falling = lambda rate: optax.cosine_decay_schedule(rate, max(steps, 1), rates.last)
    networks, noise = optax.adam(falling(rates.network)), optax.adam(falling(rates.noise))
    if family is None:
        return make_optimiser(networks, noise, None, cooling(steps))
    graph = optax.set_to_zero()
    if rates.graph > 0:
        graph = natural_descent(family, falling(rates.graph), float(num_sequences))
    return make_optimiser(networks, noise, graph)


def cooling(steps: int) -> optax.GradientTransformation:
    """From temperature one to the coldest in so many steps, each by the same factor."""
    down = lambda x: jnp.full_like(x, np.log(COLDEST) / max(steps, 1))
    return optax.stateless(lambda updates, _: jax.tree.map(down, updates))


def with_principal_components(model: SVAE, data: Batch) -> SVAE:
    """The linear parts of both networks set to what principal components analysis of the data gives.

    The latent dimensions are the leading components, each with unit variance. A decoder whose outputs are
    not on the scale of the encoder's inputs keeps its random linear part.
    """
    if not isinstance(model.encoder.network, Residual):
        return model
    n, present = model.pgm.latent_dim, np.asarray(data.present)
    seen = present.any(axis=-1)
    frames = np.asarray(model.likelihood.features(data.filled), np.float64)[seen]
    mean = frames.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov((frames - mean).T))
    scale = np.sqrt(np.maximum(values[::-1][:n], 1e-6))
    basis = vectors[:, ::-1][:, :n]
    basis = basis * np.where(basis.sum(axis=0) < 0, -1, 1)  # eigenvectors have no sign of their own
    shape = model.encoder.network.linear.weight.shape
    weight, bias = np.zeros(shape), np.zeros(shape[0])
    found = min(n, basis.shape[1])
    weight[:found] = (basis / scale).T
    bias[:found] = -weight[:found] @ mean
    where = lambda m: (m.encoder.network.linear.weight, m.encoder.network.linear.bias)
    model = eqx.tree_at(where, model, (jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32)))
    if not isinstance(model.decoder, Residual) or not isinstance(model.likelihood, Gaussian):
        return model
    weight = np.zeros((len(mean), n))
    weight[:, :found] = basis * scale
    where = lambda m: (m.decoder.linear.weight, m.decoder.linear.bias)
    return eqx.tree_at(where, model, (jnp.asarray(weight, jnp.float32), jnp.asarray(mean, jnp.float32)))


def with_simple_prior(model: SVAE, persistence: float) -> SVAE:
    """The same networks around latent paths that wander: z_t is correlated with z_{t-1} by `persistence`.

    With none this is the plain VAE. To that, neighbouring frames have nothing in common, and it may tear
    what belongs together; where paths jump, no dynamics can be found. Each step has a standard normal
    prior in either case.
    """
    n = model.pgm.latent_dim
    if persistence == 0:
        return with_graph(model, StandardNormal(n), ())
    sure = 1e6  # pseudo-observations: this prior is not learned
    lds = LDS(n, getattr(model.pgm, "form", Form.SEQUENTIAL))
    eye = jnp.eye(n)
    initial = NIWParameters(sure * eye, jnp.zeros(n), jnp.asarray(sure), jnp.asarray(sure))
    steps = (1 - persistence**2) * sure * eye
    weights = persistence * jnp.eye(n, n + 1)
    dynamics = MNIWParameters(steps, weights, sure * jnp.eye(n + 1), jnp.asarray(sure))
    return with_graph(model, lds, LDSGlobals(initial, dynamics))


def with_sure_potentials(model: SVAE, data: Batch, innovation: float) -> SVAE:
    """Potentials with noise far below the variance of a step, if they have more.

    The second stage took encoded paths for certain, so the dynamics that it found contain the encoder's
    noise. Where potentials were vague as well, that noise would count twice, and states that differ in
    little else would melt into the broadest one.
    """
    precision = np.asarray(eqx.filter_jit(SVAE.evidence)(model, data).precision)
    typical = np.median(precision[np.asarray(data.present).any(axis=-1)], axis=0)
    lacking = np.maximum(np.log(SURE / innovation) - np.log(typical), 0)
    surer = lambda x: x + jnp.asarray(lacking, x.dtype)
    return eqx.tree_at(lambda m: m.encoder.log_precision, model, replace_fn=surer)
