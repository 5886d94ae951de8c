r"""Belief propagation as a differentiable map: natural parameters in, expected statistics out.

The statistics are the gradient of the log-partition, so their Jacobian is its Hessian (the covariance of
the sufficient statistics), which is symmetric. Hence the vector-Jacobian product **is** the
Jacobian-vector product: the backward pass is one linearised forward pass with the factors of the first,
and no tape of the recursion is ever transposed.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from svae.expfam.family import ExponentialFamily, Terms, add, zeros_for_none


@eqx.filter_custom_vjp
def propagate(natural: Terms, family: ExponentialFamily) -> tuple[Float[Array, ""], Terms]:
    """Log-partition (summed) and expected statistics, with tape-free reverse-mode derivatives.

    For forward mode use `family.infer` or `linearize`.
    """
    log_partition, stats = family.infer(natural)
    return jnp.sum(log_partition), stats


@propagate.def_fwd
def _forward(perturbed, natural, family):
    del perturbed
    log_partition, stats, jacobian = linearize(natural, family)
    return (log_partition, stats), (stats, jacobian)


@propagate.def_bwd
def _backward(residuals, cotangents, perturbed, natural, family):
    del perturbed, natural, family
    stats, jacobian = residuals
    log_partition_bar, stats_bar = cotangents
    gradient = jacobian(zeros_for_none(stats, stats_bar))
    return gradient if log_partition_bar is None else add(gradient, stats, log_partition_bar)


def linearize(
    natural: Terms, family: ExponentialFamily
) -> tuple[Float[Array, ""], Terms, Callable[[Terms], Terms]]:
    """Log-partition (summed), statistics, and the symmetric linear map d natural -> d stats."""
    log_partition, stats, jacobian = family.linearize(natural)
    return jnp.sum(log_partition), stats, jacobian
