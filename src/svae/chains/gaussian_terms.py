"""The statistics of a Gaussian chain, and its natural parameters, which have the same fields."""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float

from svae.chains.padding import zero_padding
from svae.linalg import symmetrize


class GaussianChainTerms(NamedTuple):
    """Pairs with z_t, z_t z_t' and z_t z_{t+1}'."""

    first: Float[Array, "time n"]
    second: Float[Array, "time n n"]
    cross: Float[Array, "time_minus_1 n n"]


def without_padding(valid: Bool[Array, "time"], terms: GaussianChainTerms) -> GaussianChainTerms:
    """Zero in the padding, and on the links to it."""
    first, second, cross = terms
    return GaussianChainTerms(
        zero_padding(valid, first), zero_padding(valid, second), zero_padding(valid[1:], cross)
    )


def natural_from_potentials(
    initial_precision: Float[Array, "n n"],
    initial_linear: Float[Array, "n"],
    transition_11: Float[Array, "time_minus_1 n n"],
    transition_12: Float[Array, "time_minus_1 n n"],
    transition_22: Float[Array, "time_minus_1 n n"],
    transition_1: Float[Array, "time_minus_1 n"],
    transition_2: Float[Array, "time_minus_1 n"],
    node_precision: Float[Array, "time n n"],
    node_linear: Float[Array, "time n"],
) -> GaussianChainTerms:
    r"""The chain of an LDS with (expected) potentials $J_0, h_0; J_{11}, J_{12}, J_{22}, h_1, h_2; R, r$.

    The transition factor is $\exp\{-h_1^\top z - \tfrac12 z^\top J_{11} z + z^\top J_{12} z'
    - \tfrac12 z'^\top J_{22} z' + h_2^\top z'\}$ with z, z' two neighbours; at each node
    $\exp\{r^\top z - \tfrac12 z^\top R z\}$ is added. R = 0, r = 0 marks a missing step.
    """
    precision = node_precision.at[0].add(initial_precision)
    precision = precision.at[:-1].add(transition_11).at[1:].add(transition_22)
    linear = node_linear.at[0].add(initial_linear).at[:-1].add(-transition_1).at[1:].add(transition_2)
    return GaussianChainTerms(linear, -0.5 * symmetrize(precision), transition_12)
