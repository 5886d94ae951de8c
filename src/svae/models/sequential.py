r"""Models that go from step to step, each by networks: one scan for training and for every question.

$$ p(x, z) = \prod_t p(z_t \mid c_t)\, p(x_t \mid z_t, c_t), \qquad
   q(z \mid x) = \prod_t q(z_t \mid c_t, y_t), $$

where c_t is what the past left behind (of some models the latent variables alone, of others frames as well)
and y_t is what a network reads in the observed frames. Each block of observed frames is read by itself. At a
missing step the posterior is the prior, and what it leaves behind is a draw: so drawn frames rule what comes
after them, but are never read as if they had been observed. On average the bound is one of the evidence of
what was observed. A run without noise, which takes the mean of every step, is what `encode` shows.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae.models.base import Batch, Bound, Certificate, Complete, Draws, Latents, Model, Reading, Segmentation
from svae.networks import Likelihood, Normal, either, only_present, step_by_step

FARTHEST = 1e6  # of latent variables at missing steps: a prior that runs away must not end in NaN


class Step(NamedTuple):
    """The latent variables of one step: a draw, and what it costs."""

    z: Float[Array, "*batch latent"]
    deviation: Float[Array, "*batch latent"]  # of the posterior
    kl: Float[Array, "*batch"]
    log_ratio: Float[Array, "*batch"]  # log p - log q of the draw
    choice: Float[Array, "*batch k"] | None = None  # of a state: one-hot, or nearly so
    probability: Float[Array, "*batch k"] | None = None  # of every state


class Trace(NamedTuple):
    """A run through sequences, or through one of them."""

    steps: Step
    output: Float[Array, "*batch time outputs"]  # of the decoder
    values: Float[Array, "*batch time features"]  # what was observed, and draws of what was not


class SequentialModel(Model):
    """What the contract asks for, from a function of a batch, and four of a step of one sequence."""

    likelihood: eqx.AbstractVar[Likelihood]
    num_features: eqx.AbstractVar[int]

    @abstractmethod
    def evidence(
        self, features: Float[Array, "batch time inputs"], observed: Bool[Array, "batch time"]
    ) -> Any:
        """y: what the encoder reads in each sequence, step by step. Entries that are missing are zero."""

    @abstractmethod
    def begin(self, num_steps: int) -> Any:
        """What there is before the first step."""

    @abstractmethod
    def latent(
        self, key: PRNGKeyArray | None, past: Any, evidence: Any, observed: Bool[Array, ""] | Literal[True]
    ) -> Step:
        """The latent variables of a step: from the posterior if it was observed, otherwise the prior.

        Without a key, their mean.
        """

    @abstractmethod
    def decode(self, past: Any, z: Float[Array, "latent"]) -> Float[Array, "outputs"]:
        """The likelihood's parameters."""

    def frame(self, features: Float[Array, "inputs"]) -> Float[Array, "frame"]:
        """What `advance` gets of a frame. Of frames that are there, it is found for all at once."""
        return features

    @abstractmethod
    def advance(self, past: Any, step: Step, frame: Float[Array, "frame"]) -> Any:
        """What the next step may know. A model of which frames depend on the latent variables alone takes
        no frame here, and the compiler then leaves out what would have drawn it."""

    def walk(
        self,
        keys: PRNGKeyArray | None,
        values: Float[Array, "batch time features"],
        present: Bool[Array, "batch time features"],
        complete: bool = False,
    ) -> Trace:
        """From the first step of each sequence to its last; in `complete` ones nothing is missing.

        One after the other come only the steps' draws. What else there is to know of them is found at once.
        """
        count, time, _ = values.shape
        observed = jnp.any(present, axis=-1)
        evidence = self.evidence(jax.vmap(self.seen)(values, present), observed)
        latent_keys, data_keys = (None, None) if keys is None else jax.vmap(step_keys, (0, None))(keys, time)
        given = _Given(latent_keys, evidence, None if complete else observed)
        more = self.frame(self.likelihood.features(values)) if complete else (data_keys, values, present)
        start = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), self.begin(time))
        one = _one_known if complete else _one_drawn
        _, drawn = step_by_step(_of_batch(one), self, start, _turned((given, more)))
        pasts, z, choice, *completed = _turned(drawn)
        steps = jax.vmap(jax.vmap(partial(_latent, self)))(pasts, given)
        output = jax.vmap(jax.vmap(self.decode))(pasts, z)
        return Trace(steps._replace(z=z, choice=choice), output, values if complete else completed[0])

    def run(self, key: PRNGKeyArray | None, batch: Batch) -> Trace:
        """Every sequence, each with noise of its own."""
        keys = None if key is None else jax.random.split(key, batch.num_sequences)
        return self.walk(keys, batch.filled, batch.present, isinstance(batch, Complete))

    def seen(
        self, values: Float[Array, "time features"], present: Bool[Array, "time features"]
    ) -> Float[Array, "time inputs"]:
        """What an encoder sees of one sequence."""
        return only_present(self.likelihood.features(jnp.where(present, values, 0)), present)

    def elbo(self, key: PRNGKeyArray, batch: Batch) -> Bound:
        """One draw of z from q(z)."""
        steps, log_likelihood = self._scored(key, batch)
        diagnostics = {}
        if steps.probability is not None:
            inside = batch.inside[:, :, None]
            diagnostics["usage"] = jnp.sum(jnp.where(inside, steps.probability, 0), axis=1)
        nothing = jnp.zeros((), log_likelihood.dtype)
        return Bound(log_likelihood, jnp.sum(steps.kl, axis=1), nothing, diagnostics)

    def log_weights(
        self, parameter_key: PRNGKeyArray, key: PRNGKeyArray, batch: Batch, num_samples: int
    ) -> Float[Array, "samples batch"]:
        """Each of a run of its own."""

        def one(key: PRNGKeyArray) -> Array:
            steps, log_likelihood = self._scored(key, batch)
            return log_likelihood + jnp.sum(steps.log_ratio, axis=1)

        return jax.lax.map(one, jax.random.split(key, num_samples))

    def encode(self, batch: Batch) -> Latents:
        """The path without noise, and the deviations of each step given the one before it."""
        return _latents(self._quiet(batch))

    def reconstruct(self, batch: Batch) -> Float[Array, "batch time features"]:
        """Decoded from the path without noise."""
        return self.likelihood.mean(self._quiet(batch).output)

    def impute(self, key: PRNGKeyArray, batch: Batch, num_samples: int, parameters: Any = None) -> Draws:
        """Each of a run of its own."""
        self._require_plain(batch)

        def one(key: PRNGKeyArray) -> Draws:
            trace = self.run(key, batch)
            values = jnp.where(batch.present, batch.values, trace.values)
            return Draws(values, trace.steps.z, _states(trace.steps))

        return jax.vmap(one)(jax.random.split(key, num_samples))

    def generate(
        self, key: PRNGKeyArray, num_sequences: int, num_steps: int, parameters: Any = None
    ) -> Draws:
        """Sequences of which nothing was observed."""
        values = jnp.full((num_sequences, num_steps, self.num_features), jnp.nan, jnp.float32)
        nothing = Batch(values, jnp.full(num_sequences, num_steps, jnp.int32))
        return jax.tree.map(lambda x: x[0], self.impute(key, nothing, 1))

    def segment(self, batch: Batch) -> Segmentation:
        """The state of every step given those before it, along the path without noise."""
        found = self._segmentation(self._quiet(batch), batch)
        return super().segment(batch) if found is None else found

    def read(self, key: PRNGKeyArray, batch: Batch) -> Reading:
        """Path and states without noise, and the bound with it."""
        quiet, (steps, log_likelihood) = self._quiet(batch), self._scored(key, batch)
        bound = log_likelihood - jnp.sum(steps.kl, axis=1)
        return Reading(_latents(quiet), self._segmentation(quiet, batch), _no_iteration(batch), bound)

    def _quiet(self, batch: Batch) -> Trace:
        self._require_plain(batch)
        return self.run(None, batch)

    def _segmentation(self, trace: Trace, batch: Batch) -> Segmentation | None:
        states, probability = _states(trace.steps), trace.steps.probability
        if states is None or probability is None:
            return None
        return Segmentation(states, probability, _no_iteration(batch))

    def _scored(self, key: PRNGKeyArray, batch: Batch) -> tuple[Step, Float[Array, "batch"]]:
        """The steps of a run, at no cost where nothing was observed, and the log-likelihood."""
        self._require_plain(batch)
        trace, observed = self.run(key, batch), jnp.any(batch.present, axis=-1)
        output = jnp.where(observed[:, :, None], trace.output, 0)  # elsewhere it may be anything
        density = jnp.where(batch.present, self.likelihood.log_density(output, batch.filled), 0)
        free = lambda cost: jnp.where(observed, cost, 0)
        steps = trace.steps._replace(kl=free(trace.steps.kl), log_ratio=free(trace.steps.log_ratio))
        return steps, jnp.sum(density, axis=(1, 2))

    def _require_plain(self, batch: Batch) -> None:
        if batch.allowed is not None or batch.potentials is not None:
            raise TypeError(f"{type(self).__name__} takes neither allowed states nor potentials")


class _Given(NamedTuple):
    """What a step's latent variables go by, but for the past."""

    key: PRNGKeyArray | None
    evidence: Any
    observed: Bool[Array, "*batch"] | None  # None: known to be


def _latent(model: SequentialModel, past: Any, given: _Given) -> Step:
    if given.observed is None:
        return model.latent(given.key, past, given.evidence, True)
    return model.latent(given.key, past, given.evidence, given.observed)


def _one_known(model: SequentialModel, past: Any, inputs: tuple[_Given, Any]) -> tuple[Any, tuple]:
    """A step whose frame is there, and read."""
    given, frame = inputs
    step = _latent(model, past, given)
    return model.advance(past, step, frame), (past, step.z, step.choice)


def _one_drawn(model: SequentialModel, past: Any, inputs: tuple[_Given, Any]) -> tuple[Any, tuple]:
    """A step that draws what is missing of its frame."""
    (given, (key, x, present)), likelihood = inputs, model.likelihood
    step = _latent(model, past, given)
    output = model.decode(past, step.z)
    drawn = likelihood.mean(output) if key is None else likelihood.sample(key, output)
    x = jnp.where(present, x, drawn)
    frame = model.frame(likelihood.features(x))
    return model.advance(past, step, frame), (past, step.z, step.choice, x)


def _of_batch(one: Callable) -> Callable:
    return lambda model, past, inputs: jax.vmap(partial(one, model))(past, inputs)


def _turned(tree: Any) -> Any:
    """Time before batch, or the other way round."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def normal_step(
    key: PRNGKeyArray | None,
    posterior: Normal,
    prior: Normal,
    observed: Bool[Array, "*batch"] | Literal[True],
) -> Step:
    """A step whose latent variables are normal, given the past."""
    q = either(observed, posterior, prior)
    z = q.sample(key)
    z = either(observed, z, jnp.clip(z, -FARTHEST, FARTHEST))
    return Step(z, q.deviation, q.kl(prior), prior.log_density(z) - q.log_density(z))


def step_keys(key: PRNGKeyArray, num_steps: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """For the latent variables and for the frame of each step, whatever comes later."""
    of_step = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    latent_key, data_key = jax.random.split(key)
    return of_step(latent_key, jnp.arange(num_steps)), of_step(data_key, jnp.arange(num_steps))


def _latents(trace: Trace) -> Latents:
    return Latents(trace.steps.z, trace.steps.deviation)


def _states(steps: Step) -> Int[Array, "batch time"] | None:
    return None if steps.choice is None else jnp.argmax(steps.choice, axis=-1)


def _no_iteration(batch: Batch) -> Certificate:
    """Amortised inference is done at once."""
    count, dtype = batch.values.shape[0], batch.values.dtype
    return Certificate(jnp.ones(count, bool), jnp.zeros(count, jnp.int32), jnp.zeros(count, dtype))
