"""One gradient step, and many of them in one program."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae.compiling import often
from svae.models import Batch, Bound, Model
from svae.training.feeding import Coming, batch_indices

NETWORKS, NOISE, GRAPH, COOLING = "networks", "noise", "graph", "cooling"


class TrainState(NamedTuple):
    """All that changes while training: with the data and the seed, it determines everything to come."""

    model: Any
    optimiser: Any
    step: Int[Array, ""]
    caution: Float[Array, ""]  # the step sizes' factor, lowered after failures
    failures: Int[Array, ""]
    best: Float[Array, ""]  # the highest bound so far, of a chunk of steps or of held-out data
    waited: Int[Array, ""]  # chunks since then
    best_model: Any  # as it was then


class Metrics(NamedTuple):
    """What one step tells."""

    elbo: Float[Array, ""]  # nats per sequence
    log_likelihood: Float[Array, ""]
    kl_local: Float[Array, ""]
    kl_parameters: Float[Array, ""]  # in all
    finite: Bool[Array, ""]
    diagnostics: dict[str, Array]


def groups(model: Model) -> Any:
    """Which optimiser moves which leaf."""

    def named(path, _) -> str:
        fields = [getattr(part, "name", None) for part in path]
        if fields[0] == "parameters":
            return GRAPH
        if fields[-1] == "log_temperature":
            return COOLING
        return NOISE if fields[0] == "likelihood" or fields[-1] == "log_precision" else NETWORKS

    return jax.tree_util.tree_map_with_path(named, model)


def make_optimiser(
    networks: optax.GradientTransformation,
    noise: optax.GradientTransformation,
    graph: optax.GradientTransformation | None,
    cooling: optax.GradientTransformation | None = None,
) -> optax.GradientTransformation:
    """Each group of parameters has an optimiser of its own, if a model has such parameters.

    The scales of noise, in the likelihood and in the encoder, are one: they may have a hundredfold to go,
    and until they are there hide what there is to see.
    """

    def for_parameters(graph):
        within = lambda tree: tree.parameters
        init = lambda params: graph.init(within(params))

        def update(updates, state, params):
            moved, state = graph.update(within(updates), state, within(params))
            return eqx.tree_at(within, updates, moved), state

        return optax.GradientTransformation(init, update)

    each = {NETWORKS: networks, NOISE: noise}
    each |= {} if graph is None else {GRAPH: for_parameters(graph)}
    each |= {} if cooling is None else {COOLING: cooling}
    return optax.partition(each, groups)


def begin(model: Model, optimiser: optax.GradientTransformation) -> TrainState:
    """Before the first step. All types are made explicit, lest the second step compile anew."""
    model = jax.tree.map(lambda x: lax.convert_element_type(x, x.dtype) if eqx.is_array(x) else x, model)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    zero = jnp.zeros((), jnp.int32)
    return TrainState(
        model, state, zero, jnp.ones((), jnp.float32), zero, jnp.full((), -jnp.inf, jnp.float32), zero, model
    )


def next_batch(
    state: TrainState, data: Batch | Coming, key: PRNGKeyArray, batch_size: int
) -> tuple[Int[Array, "b"], Batch, PRNGKeyArray]:
    """Which sequences the next step takes, these, and the key of its noise: other noise after a failure."""
    order_key, noise_key = jax.random.split(key)
    if isinstance(data, Coming):
        which, batch = data.at(state.step)
    else:
        which = batch_indices(order_key, state.step, data.num_sequences, batch_size)
        batch = data.select(which)
    return which, batch, jax.random.fold_in(jax.random.fold_in(noise_key, state.failures), state.step)


def loss(model: Model, key: PRNGKeyArray, batch: Batch, num_sequences: int) -> tuple[Float[Array, ""], Bound]:
    """Minus the bound, per sequence."""
    bound = model.elbo(key, batch)
    return -jnp.mean(bound.elbo(num_sequences)), bound


def step(
    state: TrainState,
    batch: Batch,
    key: PRNGKeyArray,
    optimiser: optax.GradientTransformation,
    num_sequences: int,
) -> tuple[TrainState, Metrics]:
    """Go one step; where something is not finite, stay and say so."""
    (value, bound), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(
        state.model, key, batch, num_sequences
    )
    updates, optimiser_state = optimiser.update(
        gradient, state.optimiser, eqx.filter(state.model, eqx.is_inexact_array)
    )
    updates = jax.tree.map(lambda x: state.caution.astype(x.dtype) * x, updates)
    finite = jnp.isfinite(value) & _all_finite(updates)
    moved = state._replace(
        model=eqx.apply_updates(state.model, updates), optimiser=optimiser_state, step=state.step + 1
    )
    choose = lambda new, old: jnp.where(finite, new, old) if eqx.is_array(new) else old
    diagnostics = {name: jnp.mean(x, axis=0, dtype=value.dtype) for name, x in bound.diagnostics.items()}
    metrics = Metrics(
        -value,
        jnp.mean(bound.log_likelihood),
        jnp.mean(bound.kl_local),
        bound.kl_parameters,
        finite,
        diagnostics,
    )
    return jax.tree.map(choose, moved, state), metrics


def _all_finite(tree: Any) -> Bool[Array, ""]:
    checks = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(checks)) if checks else jnp.asarray(True)


def take_steps(
    state: TrainState,
    data: Batch | Coming,
    key: PRNGKeyArray,
    optimiser: optax.GradientTransformation,
    batch_size: int,
    count: int,
) -> tuple[TrainState, Metrics]:
    """`count` steps in one program, with the metrics of each. After a failure nothing moves any more."""
    num_sequences = data.num_sequences
    arrays, rest = eqx.partition(state, eqx.is_array)

    def one(carry, _):
        arrays, healthy = carry
        state = eqx.combine(arrays, rest)
        _, batch, noise_key = next_batch(state, data, key, batch_size)
        new, metrics = step(state, batch, noise_key, optimiser, num_sequences)
        # After a failure the same step would be tried again, with the same result
        metrics = metrics._replace(finite=metrics.finite & healthy)
        return (eqx.filter(new, eqx.is_array), metrics.finite), metrics

    (arrays, _), metrics = lax.scan(one, (arrays, jnp.asarray(True)), None, length=count)
    return eqx.combine(arrays, rest), metrics


run_steps = often(take_steps)
