"""What a feature network is: a classifier whose last layer but one is looked at."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae.networks import Dense

WEIGHTS, MOMENTS = "weights", "moments"


class Classifier(eqx.Module):
    """From a batch of padded sequences to features, and from these to scores of classes.

    `lengths` tells how many steps of each sequence are real; what follows them has no influence. With a key
    the network is in training: it normalises by the batch and draws what to drop. Without one it is a fixed
    function of each sequence on its own.
    """

    head: eqx.AbstractVar[Dense]

    @abstractmethod
    def features(
        self,
        values: Float[Array, "batch time channels"],
        lengths: Int[Array, "batch"],
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "batch features"]:
        """The layer before the last, averaged over time."""

    def __call__(
        self,
        values: Float[Array, "batch time channels"],
        lengths: Int[Array, "batch"],
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "batch classes"]:
        """Unnormalised log-probabilities of the classes."""
        return self.head(self.features(values, lengths, key))


def groups(network: Any) -> Any:
    """Which arrays are learned weights, and which the moments that batch normalisation stores."""

    def named(path, _) -> str:
        return MOMENTS if any(getattr(part, "name", None) == "moments" for part in path) else WEIGHTS

    return jax.tree_util.tree_map_with_path(named, network)


def num_parameters(network: Any) -> int:
    """How many numbers are learned; also for the shapes that `eqx.filter_eval_shape` gives."""
    kinds, leaves = jax.tree.leaves(groups(network)), jax.tree.leaves(network)
    return sum(leaf.size for kind, leaf in zip(kinds, leaves, strict=True) if kind == WEIGHTS)
