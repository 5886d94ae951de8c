"""The inference problems whose gradients are studied."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from svae.expfam import Terms
from svae.meanfield import BlockPosterior, Blocks, local_kl
from svae.pgm import SLDS


class System(eqx.Module):
    """A graphical model, and what it costs that a path does not show the target."""

    graph: SLDS
    reconstruction: Callable[[Array, Array], Array]


class Case(NamedTuple):
    """Problems of one system. All but `theta` have a leading axis of sequences."""

    theta: Terms
    linear: Float[Array, "batch time n"]  # the encoder's potentials exp(r'z - z' diag(R) z / 2)
    precision: Float[Array, "batch time n"]
    target: Float[Array, "batch time features"]  # what a sample is to show
    start: Blocks
    noise: Key[Array, "batch"]  # of the one sample

    def part(self, which: slice) -> "Case":
        """Some of the sequences."""
        mine = jax.tree.map(lambda x: x[which], self._replace(theta=None))
        return mine._replace(theta=self.theta)


EACH_SEQUENCE: Any = Case._make((None, 0, 0, 0, 0, 0))  # axes for vmap


class Gradient(NamedTuple):
    """Of one sequence's loss (or, with a leading axis, of each sequence's)."""

    theta: Terms
    linear: Float[Array, "*batch time n"]
    precision: Float[Array, "*batch time n"]


def make_case(graph: SLDS, natural: Terms, linear: Array, precision: Array, target: Array, seed: int) -> Case:
    """Inference under q(theta), with a start and the noise of a sample for each sequence."""

    @eqx.filter_jit
    def prepare(natural: Terms, linear: Array, precision: Array) -> tuple[Terms, Blocks]:
        theta = graph.family.expected_stats(natural)
        potentials = jax.vmap(graph.potentials)(linear, precision)
        return theta, jax.vmap(lambda own: graph.start(theta, own, None))(potentials)

    theta, start = prepare(natural, linear, precision)
    return Case(theta, linear, precision, target, start, jax.random.split(jax.random.key(seed), len(linear)))


def loss(system: System, case: Case, theta: Terms, posterior: BlockPosterior) -> Float[Array, ""]:
    """Of one sequence: local KL, and what the reconstruction from one sample costs."""
    chain, _ = system.graph.blocks(None)
    path = chain.sample(case.noise, posterior.naturals[0])
    return local_kl(system.graph.problem(), theta, posterior) + jnp.sum(
        system.reconstruction(path, case.target)
    )
