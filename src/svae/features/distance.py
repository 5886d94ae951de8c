"""The Frechet distance by a feature network, which never loses sight of the network."""

from __future__ import annotations

from dataclasses import dataclass

from svae.evaluation import FrechetEstimate, Spread, frechet_estimate, frechet_floor
from svae.features.artifact import FeatureNetwork
from svae.features.inputs import Lengths, Values


@dataclass(frozen=True)
class NetworkDistance:
    """A Frechet distance, and whose features it is the distance of.

    `a < b` and `a.difference(b)` compare distances by one network, and refuse to do so for two.
    """

    estimate: FrechetEstimate
    floor: Spread  # between halves of the real windows; to be compared with `estimate.halves`
    fingerprint: str

    def __lt__(self, other: NetworkDistance) -> bool:
        return self.difference(other) < 0

    def difference(self, other: NetworkDistance) -> float:
        """By how much this distance is larger."""
        require_same_network(self, other)
        return self.estimate.distance - other.estimate.distance


def require_same_network(*distances: NetworkDistance) -> str:
    """The fingerprint of the network that all these are by; an error if there are several."""
    found = sorted({each.fingerprint for each in distances})
    if len(found) != 1:
        raise ValueError(
            f"Frechet distances by different feature networks cannot be compared: {', '.join(found)}; "
            "compute all of them with one network"
        )
    return found[0]


def frechet_between(
    network: FeatureNetwork,
    real: Values,
    generated: Values,
    real_lengths: Lengths | None = None,
    generated_lengths: Lengths | None = None,
    repeats: int = 10,
    seed: int = 0,
) -> NetworkDistance:
    """How far generated windows are from real ones, in the eyes of the network."""
    seen, made = network.features(real, real_lengths), network.features(generated, generated_lengths)
    return NetworkDistance(
        frechet_estimate(seen, made, repeats, seed),
        frechet_floor(seen, None, repeats, seed),
        network.fingerprint,
    )
