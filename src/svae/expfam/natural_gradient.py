r"""Gradients for the posterior of the model's parameters, $q(\theta; \eta)$.

The evidence lower bound depends on $\eta$ only through the expected statistics
$\mu = E_q[t(\theta)]$, and the Fisher information of $q$ is $F_\eta = \partial\mu/\partial\eta$. With
unconstrained parameters $\tilde\eta$, $\eta = f(\tilde\eta)$, the natural gradient is therefore

$$ F_{\tilde\eta}^{-1} \nabla_{\tilde\eta} \mathcal L
   = \frac{\partial\tilde\eta}{\partial\eta} \nabla_\mu \mathcal L : $$

treat $\eta \to \mu$ as the identity, then push the gradient *forward* through $f^{-1}$. That is one
custom derivative rule, the same for every family. The result is a gradient like any other: hand it to
any optimiser (plain SGD is the classical choice). Long steps are better taken by `natural_descent`, which
goes straight in $\eta$, where $f$ would bend the way, and minds the borders.

Which gradient is taken is a value, a `GradientRule`:

| rule | gradient |
|---|---|
| `UNBIASED` | natural gradient of the whole bound |
| `BIASED` | nothing flows through inference: the SVI update, $\eta_0 + E[t(z)] - \eta$ |
| `PLAIN` | ordinary gradient in the unconstrained coordinates |
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from svae.expfam.family import ParameterFamily, Terms, add, inner, zeros_for_none


class GradientRule(NamedTuple):
    """How gradients reach the unconstrained parameters."""

    natural: bool  # precondition with the inverse Fisher information
    correction: bool  # let gradients flow through inference, too


UNBIASED = GradientRule(natural=True, correction=True)
BIASED = GradientRule(natural=True, correction=False)
PLAIN = GradientRule(natural=False, correction=True)


class ParameterPosterior(NamedTuple):
    """q(theta), ready for use.

    `stats` carry the gradient; `natural` and `log_partition` are constants to the optimiser, which
    loses nothing: the bound's direct dependence on them has derivative zero.
    """

    natural: Terms
    stats: Terms
    log_partition: Float[Array, ""]
    inference_stats: Terms  # what inference of the latent variables should use


def parameter_posterior(
    family: ParameterFamily, unconstrained: Terms, rule: GradientRule = UNBIASED
) -> ParameterPosterior:
    """The posterior over parameters, with gradients according to `rule`."""
    infer = _infer_with_natural_gradient if rule.natural else _infer
    standard, log_partition, stats = infer(unconstrained, family)
    inference_stats = stats if rule.correction else jax.lax.stop_gradient(stats)
    standard, log_partition = jax.lax.stop_gradient((standard, jnp.sum(log_partition)))
    return ParameterPosterior(family.natural_from_standard(standard), stats, log_partition, inference_stats)


def fixed_parameters(family: ParameterFamily, parameters: Any) -> ParameterPosterior:
    """Parameters known for certain: inference then is that of the model with these parameters."""
    stats = family.sufficient_stats(parameters)
    return ParameterPosterior(None, stats, jnp.asarray(jnp.nan), stats)


def natural_descent(
    family: ParameterFamily, rate: optax.ScalarOrSchedule, scale: float = 1.0
) -> optax.GradientTransformation:
    """Descent along natural gradients by `rate * scale`, exact in the natural parameters."""

    def init(params):
        del params
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(gradient, state, params):
        size = scale * (rate(state.count) if callable(rate) else rate)
        against = jax.tree.map(lambda g: (-size * g).astype(g.dtype), gradient)
        _, step = jax.jvp(family.natural_from_unconstrained, (params,), (against,))
        moved = family.advance(family.standard_from_unconstrained(params), step)
        updates = add(family.unconstrained_from_standard(moved), params, -1.0)
        return updates, optax.ScaleByScheduleState(state.count + 1)

    return optax.GradientTransformation(init, update)


def prior_kl(family: ParameterFamily, posterior: ParameterPosterior, prior: Terms) -> Float[Array, ""]:
    """KL(q(theta) || p(theta)); its natural gradient is eta - eta_0."""
    prior = jax.tree.map(lambda p, q: p.astype(q.dtype), prior, posterior.natural)
    difference = jnp.sum(family.log_partition(prior)) - posterior.log_partition
    return inner(add(posterior.natural, prior, -1.0), posterior.stats) + difference


def _infer(unconstrained: Terms, family: ParameterFamily) -> tuple[Terms, Array, Terms]:
    """Standard parameters, log-partition and expected statistics."""
    standard = family.standard_from_unconstrained(unconstrained)
    return standard, *family.infer_standard(standard)


@eqx.filter_custom_vjp
def _infer_with_natural_gradient(unconstrained: Terms, family: ParameterFamily) -> tuple[Terms, Array, Terms]:
    """The same; gradients flow through the statistics alone."""
    return _infer(unconstrained, family)


@_infer_with_natural_gradient.def_fwd
def _forward(perturbed, unconstrained, family):
    del perturbed
    found = _infer(unconstrained, family)
    return found, found[0]


@_infer_with_natural_gradient.def_bwd
def _backward(standard, cotangents, perturbed, unconstrained, family):
    del perturbed, unconstrained
    natural = family.natural_from_standard(standard)
    gradient = zeros_for_none(natural, cotangents[2])
    # Two short steps instead of one jvp of the composed inverse: the second starts from the standard
    # parameters at hand, which recomputing from the natural ones could lose to cancellation.
    _, gradient = jax.jvp(family.standard_from_natural, (natural,), (gradient,))
    return jax.jvp(family.unconstrained_from_standard, (standard,), (gradient,))[1]
