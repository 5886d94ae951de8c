r"""The structured variational autoencoder: a graphical model between an encoder and a decoder.

$$ \mathcal L = E_q\Big[\sum_t \log p(x_t \mid z_t)\Big]
   - E_{q(\theta)} \mathrm{KL}\big(q(z) \,\|\, p(z \mid \theta)\big)
   - \mathrm{KL}\big(q(\theta) \,\|\, p(\theta)\big) $$

The encoder gives potentials $\hat\ell(x_t, z_t)$, and $q(z)$ is what structured inference makes of them
and of the graphical model. With standard normal latent variables this is the plain VAE.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from svae import linalg
from svae.chains import BATCH
from svae.expfam import (
    UNBIASED,
    GaussianTerms,
    GradientRule,
    ParameterPosterior,
    Terms,
    parameter_posterior,
    prior_kl,
)
from svae.meanfield import Adjoint, Blocks, CoordinateAscent, GaussSeidel
from svae.models.base import Batch, Bound, Certificate, Draws, Latents, Model, Reading, Segmentation
from svae.models.recognition import Recognition
from svae.networks import Encoder, Evidence, Likelihood, mlp_decoder, mlp_encoder
from svae.pgm import GraphicalModel, Inference, num_draws


class SVAE(Model):
    """Encoder, graphical model, decoder, likelihood."""

    pgm: GraphicalModel
    parameters: Terms  # unconstrained parameters of q(theta)
    encoder: Encoder
    decoder: Callable[[Array], Array]
    likelihood: Likelihood
    solver: CoordinateAscent = eqx.field(default_factory=CoordinateAscent, static=True)
    adjoint: Adjoint = eqx.field(default_factory=GaussSeidel, static=True)
    rule: GradientRule = eqx.field(default=UNBIASED, static=True)
    recognition: Recognition | None = None  # dynamics of q(z), if they are not those of the model

    @property
    def num_states(self) -> int | None:
        """Those of the graphical model."""
        return getattr(self.pgm, "num_states", None)

    def posterior(self) -> ParameterPosterior:
        """q(theta), and what inference uses in its place if it has dynamics of its own."""
        posterior = parameter_posterior(self.pgm.family, self.parameters, self.rule)
        if self.recognition is None:
            return posterior
        return posterior._replace(inference_stats=self.recognition.stats())

    def evidence(self, batch: Batch) -> Evidence:
        """What the encoder makes of every sequence."""
        return jax.vmap(self.encoder)(self.likelihood.features(batch.filled), batch.present)

    def potentials(self, batch: Batch) -> Blocks:
        """Those that the batch has, or the encoder's; none at missing steps."""
        return jax.vmap(self._potentials_of_one)(*self._sources(batch))

    def _sources(self, batch: Batch) -> tuple[Any, Float[Array, "batch time"], Any]:
        """What potentials are made of: evidence or they themselves, what is observed, states allowed."""
        given = self.evidence(batch) if batch.potentials is None else batch.potentials
        return given, jnp.any(batch.present, axis=-1), batch.allowed

    def _potentials_of_one(self, given: Any, observed: Array, allowed: Array | None) -> Blocks:
        ready = isinstance(given, GaussianTerms)
        potentials = (
            self.pgm.wrap(given) if ready else self.pgm.potentials(given.linear, given.precision, observed)
        )
        return potentials if allowed is None else self.pgm.restrict(potentials, allowed)

    def infer(self, posterior: ParameterPosterior, batch: Batch, start: Blocks | None = None) -> Inference:
        """q(z) of every sequence, from where the potentials suggest or from given statistics."""
        settings: dict[str, Any] = {"solver": self.solver, "adjoint": self.adjoint}

        # In here what all sequences share, such as potentials of transitions, stays shared
        def infer(sources: tuple, length: Array, start: Blocks | None) -> Inference:
            potentials = self._potentials_of_one(*sources)
            return self.pgm.infer(posterior, potentials, length=length, start=start, **settings)

        return jax.vmap(infer, axis_name=BATCH)(self._sources(batch), batch.lengths, start)

    def elbo(self, key: PRNGKeyArray, batch: Batch) -> Bound:
        """One draw of z from q(z)."""
        posterior = self.posterior()
        inference = self.infer(posterior, batch)
        log_likelihood = self._log_likelihood(key, inference, batch)
        solution = inference.solution
        diagnostics = {"sweeps": solution.sweeps, "converged": solution.converged}
        probability = self._state_probabilities(inference)
        if probability is not None:
            diagnostics["usage"] = jnp.sum(jnp.where(batch.inside[:, :, None], probability, 0), axis=1)
        kl_parameters = prior_kl(self.pgm.family, posterior, self.pgm.prior())
        return Bound(log_likelihood, inference.kl_local, kl_parameters, diagnostics)

    def log_weights(
        self, parameter_key: PRNGKeyArray, key: PRNGKeyArray, batch: Batch, num_samples: int
    ) -> Float[Array, "samples batch"]:
        """Parameters from q(theta) for each sample, latent variables from q(z) for each sequence."""
        posterior = self.posterior()
        inference = self.infer(posterior, batch)

        def one(keys):
            parameter_key, key = keys
            parameters = self.pgm.family.sample(parameter_key, posterior.natural)
            theta = self.pgm.family.sufficient_stats(parameters)

            def weight(key, solution, length, x, present):
                values = self.pgm.sample(key, solution, length)
                density = self.likelihood.log_density(self.decoder(values[0]), x)
                return jnp.sum(jnp.where(present, density, 0)) + self.pgm.log_weight(
                    theta, solution, values, length
                )

            keys = jax.random.split(key, batch.values.shape[0])
            return jax.vmap(weight)(keys, inference.solution, batch.lengths, batch.filled, batch.present)

        keys = [jax.random.split(x, num_samples) for x in (parameter_key, key)]
        return jax.lax.map(one, tuple(keys))

    def encode(self, batch: Batch) -> Latents:
        """Mean and deviation of every latent dimension."""
        return _latents(self.infer(self.posterior(), batch))

    def reconstruct(self, batch: Batch) -> Float[Array, "batch time features"]:
        """Decoded from the posterior mean."""
        return self.likelihood.mean(self.decoder(self.encode(batch).mean))

    def draw_parameters(self, key: PRNGKeyArray) -> Any:
        """A few draws from q(theta), for `impute` and `generate`."""
        return self.pgm.draw_parameters(key, self.posterior())

    def impute(
        self,
        key: PRNGKeyArray,
        batch: Batch,
        num_samples: int,
        parameters: Any = None,
        complete: Callable[..., tuple[Array, Array | None]] | None = None,
    ) -> Draws:
        """Draw latent variables, decode them, draw data; what is known stays.

        `parameters` come from `draw_parameters`. `complete(key, potentials, count, length)` draws the latent
        variables of one sequence in another way, such as `svae.pgm.bridge`.
        """
        parameter_key, latent_key, data_key = jax.random.split(key, 3)
        if complete is None and self.recognition is not None:  # q(z) is all there is: no gap has another
            posterior = self.posterior()
            complete = lambda key, *rest: self.pgm.draw(key, posterior, *rest, solver=self.solver)
        elif complete is None:
            drawn = self.draw_parameters(parameter_key) if parameters is None else parameters
            complete = lambda key, *rest: self.pgm.complete(key, drawn, *rest)
        one = lambda key, potentials, length: complete(key, potentials, num_samples, length)
        keys = jax.random.split(latent_key, batch.values.shape[0])
        completed = jax.vmap(one)(keys, self.potentials(batch), batch.lengths)
        latents, states = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), completed)
        values = self.likelihood.sample(data_key, self.decoder(latents))
        return Draws(jnp.where(batch.present[None], batch.values[None], values), latents, states)

    def generate(
        self, key: PRNGKeyArray, num_sequences: int, num_steps: int, parameters: Any = None
    ) -> Draws:
        """Parameters drawn from q(theta), in turn for each sequence, then latent variables, then data."""
        parameter_key, latent_key, data_key = jax.random.split(key, 3)
        drawn = self.draw_parameters(parameter_key) if parameters is None else parameters
        groups = num_draws(drawn)

        def one(key, index):
            own = jax.tree.map(lambda x: x[index % groups], drawn)
            return self.pgm.generate(key, own, num_steps)

        keys = jax.random.split(latent_key, num_sequences)
        latents, *states = jax.vmap(one)(keys, jnp.arange(num_sequences))
        values = self.likelihood.sample(data_key, self.decoder(latents))
        return Draws(values, latents, self.pgm.frame_states(states[0]) if states else None)

    def replicate(self, key: PRNGKeyArray, batch: Batch) -> Float[Array, "batch time features"]:
        """Data drawn anew from a q(z) that has seen them: as near as a draw of this model can come."""
        latent_key, data_key = jax.random.split(key)
        latents = self._draw(latent_key, self.infer(self.posterior(), batch), batch)
        return self.likelihood.sample(data_key, self.decoder(latents))

    def segment(self, batch: Batch) -> Segmentation:
        """The most likely path of q(k)."""
        found = self._segmentation(self.infer(self.posterior(), batch), batch)
        return super().segment(batch) if found is None else found

    def read(self, key: PRNGKeyArray, batch: Batch) -> Reading:
        """Latent path, states and bound from one inference; the bound has one draw of z from q(z)."""
        inference = self.infer(self.posterior(), batch)
        bound = self._log_likelihood(key, inference, batch) - inference.kl_local
        segmentation = self._segmentation(inference, batch)
        return Reading(_latents(inference), segmentation, _certificate(inference), bound)

    def _segmentation(self, inference: Inference, batch: Batch) -> Segmentation | None:
        probability = self._state_probabilities(inference)
        if probability is None:
            return None
        states = jax.vmap(self.pgm.most_likely_states)(inference.solution, batch.lengths)
        return Segmentation(states, probability, _certificate(inference))

    def _log_likelihood(self, key: PRNGKeyArray, inference: Inference, batch: Batch) -> Float[Array, "batch"]:
        decoded = self.decoder(self._draw(key, inference, batch))
        density = self.likelihood.log_density(decoded, batch.filled)
        return jnp.sum(jnp.where(batch.present, density, 0), axis=(1, 2))

    def _draw(
        self, key: PRNGKeyArray, inference: Inference, batch: Batch
    ) -> Float[Array, "batch time latent"]:
        draw = lambda key, solution, length: self.pgm.blocks(length)[0].sample(key, solution.naturals[0])
        keys = jax.random.split(key, batch.values.shape[0])
        return jax.vmap(draw, axis_name=BATCH)(keys, inference.solution, batch.lengths)

    def _state_probabilities(self, inference: Inference) -> Float[Array, "batch time k"] | None:
        return jax.vmap(self.pgm.state_probabilities)(inference.solution.stats)


def _latents(inference: Inference) -> Latents:
    z = inference.solution.stats[0]
    variance = linalg.diagonal(z.second) - z.first**2
    return Latents(z.first, jnp.sqrt(jnp.maximum(variance, 0)))


def _certificate(inference: Inference) -> Certificate:
    solution = inference.solution
    return Certificate(solution.converged, solution.sweeps, solution.residual)


def make_svae(
    pgm: GraphicalModel,
    likelihood: Likelihood,
    num_features: int,
    key: PRNGKeyArray,
    *,
    encoder: Encoder | None = None,
    decoder: Callable[[Array], Array] | None = None,
    **settings,
) -> SVAE:
    """An untrained model with the paper's networks, or yours."""
    pgm_key, encoder_key, decoder_key = jax.random.split(key, 3)
    if encoder is None:
        encoder = mlp_encoder(likelihood.encoder_inputs(num_features), pgm.latent_dim, encoder_key)
    if decoder is None:
        decoder = mlp_decoder(pgm.latent_dim, likelihood.num_outputs(num_features), decoder_key)
    parameters = pgm.family.unconstrained_from_natural(pgm.initial(pgm_key))
    return SVAE(pgm, parameters, encoder, decoder, likelihood, **settings)


def with_graph(
    model: SVAE, pgm: GraphicalModel, standard: Terms, recognition: Recognition | None = None
) -> SVAE:
    """The same networks around another graphical model, with the standard parameters of q(theta)."""
    parameters = pgm.family.unconstrained_from_standard(standard)
    return dataclasses.replace(model, pgm=pgm, parameters=parameters, recognition=recognition)
