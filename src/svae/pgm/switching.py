r"""What switching linear systems share whose states do not depend on the path.

$$ z_1 \sim N(\mu_0, \Sigma_0), \qquad z_t \sim N(A_{k_t} z_{t-1} + b_{k_t}, Q_{k_t}) $$

State $k_t$ rules the step from $z_{t-1}$ to $z_t$, so T steps have T-1 states. How states follow each other
is left to the model: its second block, and its energy `states_energy`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae.chains import FORBIDDEN, Form, Length
from svae.expfam import MNIWParameters, NIWParameters, ParameterPosterior, Terms
from svae.meanfield import Blocks, Solution
from svae.pgm import priors
from svae.pgm.base import PARAMETER_DRAWS, GraphicalModel
from svae.pgm.factors import normal_log_density, transition_log_density
from svae.pgm.particles import learned
from svae.pgm.starts import state_chain, transition_scores


class SwitchingLinear(GraphicalModel):
    """Linear dynamics, one for each state, with unknown parameters.

    `stay` and `move` are the prior's pseudo-counts for keeping and for changing the state, `innovation`
    is its idea of the variance of a step (the latent dimension, if None). `dynamics` are the standard
    parameters of one MNIW, as nested tuples, that is every state's prior in place of the weak one. The
    states' KL divergence to their prior counts `price` times (`svae.expfam.priced`): the higher, the longer
    they last.
    """

    num_states: int = eqx.field(static=True)
    latent_dim: int = eqx.field(static=True)
    form: Form = eqx.field(default=Form.SEQUENTIAL, static=True)
    stay: float = eqx.field(default=100.0, static=True)
    move: float = eqx.field(default=0.5, static=True)
    innovation: float | None = eqx.field(default=None, static=True)
    dynamics: tuple | None = eqx.field(default=None, static=True)
    num_particles: int = eqx.field(default=300, static=True)  # of completions
    price: float = eqx.field(default=1.0, static=True)

    def path_prior(self) -> tuple[NIWParameters, MNIWParameters]:
        """Standard parameters of the first step and of the dynamics: weak, around slow decay, or given."""
        if self.dynamics is None:
            one = priors.mniw(priors.dynamics_mean(self.latent_dim), innovation=self.innovation)
        else:
            one = MNIWParameters(*map(jnp.asarray, self.dynamics))
        each = jax.tree.map(lambda x: jnp.broadcast_to(x, (self.num_states, *x.shape)), one)
        return priors.niw(jnp.zeros(self.latent_dim)), each

    def path_guess(self, key: PRNGKeyArray) -> tuple[NIWParameters, MNIWParameters]:
        """The same, to begin with: different random couplings for each state."""
        dynamics = priors.random_dynamics(key, (self.num_states,), self.latent_dim, self.innovation)
        return priors.niw(jnp.zeros(self.latent_dim), priors.GUESS), dynamics

    def draw_parameters(
        self, key: PRNGKeyArray, posterior: ParameterPosterior, count: int = PARAMETER_DRAWS
    ) -> Any:
        """Draws of dynamics know where they were learned."""
        drawn = super().draw_parameters(key, posterior, count)
        return drawn._replace(dynamics=learned(drawn.dynamics, posterior.natural.dynamics))

    def energy(self, theta: Terms, stats: Blocks, length: Length) -> Float[Array, ""]:
        """E log p(z_1) + sum_t E log p(z_t | z_{t-1}, k_t) + E log p(k), the last at its price."""
        z, k = stats
        initial = normal_log_density(theta.initial, z.first[:1], z.second[:1])
        transitions = transition_log_density(theta.dynamics, z)
        return jnp.sum(initial) + jnp.sum(k.node * transitions) + self.states_cost(theta, k)

    def start(self, theta: Terms, potentials: Blocks, length: Length) -> Blocks:
        """The states that the potentials alone suggest."""
        z, k = potentials
        scores = transition_scores(theta.dynamics, z)
        alone = lambda k: self.states_cost(theta, k)
        return jax.tree.map(jnp.zeros_like, z), state_chain(self.blocks(length)[1], alone, scores, k)

    def restrict(self, potentials: Blocks, allowed: Bool[Array, "time k"]) -> Blocks:
        """The first step has the state of the first transition, which is that of the second step."""
        z, k = potentials
        return z, k._replace(node=jnp.where(allowed[1:], k.node, FORBIDDEN))

    def state_probabilities(self, stats: Blocks) -> Float[Array, "time k"]:
        """The first step has the state of the first transition."""
        probability = stats[1].node
        return jnp.concatenate([probability[:1], probability])

    def most_likely_states(self, solution: Solution, length: Length = None) -> Int[Array, "time"]:
        """Viterbi's path."""
        states = self.blocks(length)[1]
        return self.frame_states(states.most_likely_path(solution.naturals[1]))


def with_first(states: Int[Array, "*batch chain"]) -> Int[Array, "*batch time"]:
    """The first step has the state of the first transition."""
    return jnp.concatenate([states[..., :1], states], axis=-1)
