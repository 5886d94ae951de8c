"""The contract that every model meets. Arrays are (batch, time, features); NaN is missing."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae.expfam import GaussianTerms


class Batch(NamedTuple):
    """Sequences, padded to one length."""

    values: Float[Array, "batch time features"]
    lengths: Int[Array, "batch"]
    allowed: Bool[Array, "batch time k"] | None = None  # states that may be; all of them if None
    potentials: GaussianTerms | None = None  # of each step; the encoder's if None

    @property
    def num_sequences(self) -> int:
        """How many there are."""
        return self.values.shape[0]

    def select(self, which: Any) -> "Batch":
        """Only these sequences."""
        return jax.tree.map(lambda x: x[which], self)

    @property
    def inside(self) -> Bool[Array, "batch time"]:
        """Steps that are not padding."""
        return jnp.arange(self.values.shape[1])[None] < self.lengths[:, None]

    @property
    def present(self) -> Bool[Array, "batch time features"]:
        """Entries that are neither missing nor padding."""
        return self.inside[:, :, None] & ~jnp.isnan(self.values)

    @property
    def filled(self) -> Float[Array, "batch time features"]:
        """Zero where nothing is known."""
        return jnp.where(self.present, self.values, 0)


class Complete(Batch):
    """Sequences of which nothing is missing, and of one length: programs are made for what they are."""

    __slots__ = ()

    @property
    def inside(self) -> Bool[Array, "batch time"]:
        """All steps."""
        return jnp.ones(self.values.shape[:2], bool)

    @property
    def present(self) -> Bool[Array, "batch time features"]:
        """All entries."""
        return jnp.ones(self.values.shape, bool)

    @property
    def filled(self) -> Float[Array, "batch time features"]:
        """As they are."""
        return self.values


class Bound(NamedTuple):
    """The parts of the evidence lower bound, in nats, and what a training log should tell."""

    log_likelihood: Float[Array, "batch"]  # E_q log p(x | z)
    kl_local: Float[Array, "batch"]  # of each sequence's latent variables
    kl_parameters: Float[Array, ""]  # of what all sequences share
    diagnostics: dict[str, Array]

    def elbo(self, num_sequences: int) -> Float[Array, "batch"]:
        """The bound of each sequence, as one of `num_sequences` that share the parameters."""
        return self.log_likelihood - self.kl_local - self.kl_parameters / num_sequences


class Latents(NamedTuple):
    """The posterior of the continuous variables, step by step."""

    mean: Float[Array, "batch time latent"]
    deviation: Float[Array, "batch time latent"]


class Certificate(NamedTuple):
    """How inference of each sequence ended."""

    converged: Bool[Array, "*batch"]
    sweeps: Int[Array, "*batch"]
    residual: Float[Array, "*batch"]  # nats between the last two sweeps


class Segmentation(NamedTuple):
    """Discrete states of each step: the most likely path, and every state's probability."""

    states: Int[Array, "batch time"]
    probability: Float[Array, "batch time k"]
    certificate: Certificate


class Reading(NamedTuple):
    """All that one inference tells of each sequence."""

    latents: Latents
    segmentation: Segmentation | None  # None for models that have no states
    certificate: Certificate
    bound: Float[Array, "batch"]  # nats, parameters aside


class Draws(NamedTuple):
    """Sequences from a model; `states` is None for models that have none."""

    values: Float[Array, "*samples batch time features"]
    latents: Float[Array, "*samples batch time latent"]
    states: Int[Array, "*samples batch time"] | None


class Model(eqx.Module):
    """A deep generative model of sequences."""

    @abstractmethod
    def elbo(self, key: PRNGKeyArray, batch: Batch) -> Bound:
        """A one-sample estimate of the evidence lower bound."""

    @abstractmethod
    def encode(self, batch: Batch) -> Latents:
        """The posterior of the latent variables."""

    @abstractmethod
    def reconstruct(self, batch: Batch) -> Float[Array, "batch time features"]:
        """The data's mean, decoded from the latent variables' mean."""

    def draw_parameters(self, key: PRNGKeyArray) -> Any:
        """Draws of what all sequences share, for `impute`, `forecast` and `generate`; None if it is known."""
        return None

    @abstractmethod
    def impute(self, key: PRNGKeyArray, batch: Batch, num_samples: int, parameters: Any = None) -> Draws:
        """The data with draws, (samples, batch, ...), in place of what is missing."""

    @abstractmethod
    def generate(
        self, key: PRNGKeyArray, num_sequences: int, num_steps: int, parameters: Any = None
    ) -> Draws:
        """New sequences."""

    def forecast(
        self, key: PRNGKeyArray, batch: Batch, horizon: int, num_samples: int, parameters: Any = None
    ) -> Draws:
        """Draws of what comes after each sequence, (samples, batch, horizon, ...)."""
        if batch.allowed is not None:
            raise ValueError("a forecast does not know which states are allowed after the end")
        count, time, features = batch.values.shape
        longer = jnp.full((count, time + horizon, features), jnp.nan, batch.values.dtype)
        longer = longer.at[:, :time].set(jnp.where(batch.inside[:, :, None], batch.values, jnp.nan))
        nothing = lambda x: jnp.pad(x, [(0, 0), (0, horizon), *[(0, 0)] * (x.ndim - 2)])
        potentials = jax.tree.map(nothing, batch.potentials)
        extended = Batch(longer, batch.lengths + horizon, None, potentials)
        drawn = self.impute(key, extended, num_samples, parameters)
        steps = (batch.lengths[:, None] + jnp.arange(horizon)[None])[None]

        def after(x):
            index = steps.reshape(*steps.shape, *[1] * (x.ndim - 3))
            return jnp.take_along_axis(x, index, axis=2)

        return jax.tree.map(after, drawn)

    def log_weights(
        self, parameter_key: PRNGKeyArray, key: PRNGKeyArray, batch: Batch, num_samples: int
    ) -> Float[Array, "samples batch"]:
        """log p(x, z) - log q(z) of draws; all sequences of a sample share its parameters.

        So do those of other batches with the same `parameter_key`.
        """
        raise TypeError(f"{type(self).__name__} has no importance weights")

    @property
    def num_states(self) -> int | None:
        """How many discrete states there are; None for models that have none."""
        return None

    @abstractmethod
    def read(self, key: PRNGKeyArray, batch: Batch) -> Reading:
        """Latent path, states and bound of each sequence, with inference done as seldom as can be."""

    def segment(self, batch: Batch) -> Segmentation:
        """The discrete states; only models that have some offer it."""
        raise TypeError(f"{type(self).__name__} has no discrete states")
