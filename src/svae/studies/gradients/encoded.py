"""The inference problems of a real SVAE: its encoder's potentials, its own q(theta), its own decoder."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from svae.chains import Form
from svae.models import SVAE, Batch
from svae.networks import Likelihood
from svae.pgm import SLDS
from svae.studies.gradients.problems import Case, System, make_case


class Decoded(eqx.Module):
    """Minus the log-likelihood of the target."""

    decoder: Callable[[Array], Array]
    likelihood: Likelihood

    def __call__(self, path: Array, target: Array) -> Array:
        """In nats."""
        return -jnp.sum(self.likelihood.log_density(self.decoder(path), target))


def case_of(model: SVAE, values: Float[np.ndarray, "batch time features"], seed: int) -> tuple[System, Case]:
    """Of windows as the model sees them: standardised, nothing missing, all of one length."""
    graph = model.pgm
    if not isinstance(graph, SLDS):
        raise ValueError("the study of gradients is for switching linear systems")
    model = jax.tree.map(_double, model)
    # Kernels are in single precision; on an accelerator the parallel form is the next best
    form = Form.SEQUENTIAL if jax.default_backend() == "cpu" else Form.PARALLEL
    graph = replace(graph, form=form)
    batch = Batch(jnp.asarray(values, jnp.float64), jnp.full(len(values), values.shape[1]))
    evidence = eqx.filter_jit(SVAE.evidence)(model, batch)
    natural = graph.family.natural_from_unconstrained(model.parameters)
    case = make_case(graph, natural, evidence.linear, evidence.precision, batch.values, seed)
    return System(graph, Decoded(model.decoder, model.likelihood)), case


def _double(x: object) -> object:
    return jnp.asarray(x, jnp.float64) if eqx.is_inexact_array(x) else x
