"""The training loop: programs of many steps, one after the other, watched and kept alive."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from svae.models import Batch, Bound, Model
from svae.training.step import Metrics, TrainState, batch_indices, loss, run_steps

Record = dict[str, Any]  # one line of the training log
Watch = Callable[[Record], None]


class Plan(NamedTuple):
    """How long to train, and how careful to be."""

    steps: int
    batch_size: int = 32
    chunk: int = 25  # steps in one program; a record is written for each
    patience: int | None = None  # chunks without a better bound that end training early
    most_failures: int = 5
    in_use: float = 0.01  # share of the frames that a state must have to count as used


class TrainingError(RuntimeError):
    """Training cannot go on; the message says what broke, where, and what may help."""


class Trained(NamedTuple):
    """The last state, and why training ended: "done", "plateau" or "interrupted"."""

    state: TrainState
    ending: str


def train(
    state: TrainState,
    data: Batch,
    key: PRNGKeyArray,
    optimiser: optax.GradientTransformation,
    plan: Plan,
    watch: Watch = lambda record: None,
    keep: Callable[[TrainState], None] = lambda state: None,
) -> Trained:
    """Train until `plan.steps`, a plateau or Ctrl-C. `keep` gets the state after each chunk, to store it."""
    num_sequences = data.values.shape[0]
    batch_size = min(plan.batch_size, num_sequences)
    try:
        while (done := int(state.step)) < plan.steps:
            count = min(plan.chunk, plan.steps - done)
            state, metrics = run_steps(state, data, key, optimiser, batch_size, count)
            if not np.asarray(metrics.finite).all():
                state = _recover(state, data, key, batch_size, plan, watch)
                continue
            record = {"step": int(state.step), **summarise(metrics, plan.in_use)}
            state = _remember(state, record["elbo"])
            watch(record)
            keep(state)
            if plan.patience is not None and int(state.waited) >= plan.patience:
                return Trained(state, "plateau")
    except KeyboardInterrupt:
        return Trained(state, "interrupted")
    return Trained(state, "done")


def _remember(state: TrainState, elbo: float) -> TrainState:
    """Count how long ago the bound was at its best."""
    better = elbo > float(state.best)
    waited = 0 if better else int(state.waited) + 1
    best = elbo if better else float(state.best)
    return state._replace(best=jnp.asarray(best, jnp.float32), waited=jnp.asarray(waited, jnp.int32))


def summarise(metrics: Metrics, in_use: float) -> Record:
    """Averages over a chunk, as plain numbers."""
    mean = lambda x: float(np.mean(np.asarray(x)))
    record: Record = {name: mean(getattr(metrics, name)) for name in ("elbo", "log_likelihood", "kl_local")}
    record["kl_parameters"] = mean(metrics.kl_parameters)
    for name, values in metrics.diagnostics.items():
        if name == "usage":
            share = np.asarray(values).mean(axis=0)
            record["states"] = int(np.sum(share / share.sum() >= in_use))
        else:
            record[name] = mean(values)
    return record


def _recover(
    state: TrainState, data: Batch, key: PRNGKeyArray, batch_size: int, plan: Plan, watch: Watch
) -> TrainState:
    """The state before the failure, with smaller steps and other noise; or an error if that goes on."""
    story = explain(state, data, key, batch_size)
    failures = int(state.failures) + 1
    watch({"step": int(state.step), "event": "not finite", "failures": failures, **story})
    if failures > plan.most_failures:
        raise TrainingError(
            f"step {int(state.step)} is not finite, after {plan.most_failures} attempts with smaller steps: "
            f"{story['quantity']} of sequence {story['sequence']}. Lower the learning rates, look at that "
            "sequence for outliers, or standardise the data."
        )
    return state._replace(caution=state.caution / 2, failures=jnp.asarray(failures, state.failures.dtype))


def explain(state: TrainState, data: Batch, key: PRNGKeyArray, batch_size: int) -> Record:
    """Which sequence of the next step's batch, and which quantity, is not finite."""
    num_sequences = data.values.shape[0]
    order_key, noise_key = jax.random.split(key)
    noise_key = jax.random.fold_in(jax.random.fold_in(noise_key, state.failures), state.step)
    which = np.asarray(batch_indices(order_key, state.step, num_sequences, batch_size))
    batch = Batch(data.values[which], data.lengths[which])
    (_, bound), gradient = _loss_and_gradient(state.model, noise_key, batch, num_sequences)
    for name in ("log_likelihood", "kl_local"):
        bad = ~np.isfinite(np.asarray(getattr(bound, name)))
        if bad.any():
            return {"quantity": name, "sequence": int(which[np.argmax(bad)])}
    if not np.isfinite(np.asarray(bound.kl_parameters)):
        return {"quantity": "kl_parameters", "sequence": -1}
    for path, leaf in jax.tree_util.tree_flatten_with_path(gradient)[0]:
        if not np.isfinite(np.asarray(leaf)).all():
            return {"quantity": f"gradient of {jax.tree_util.keystr(path)}", "sequence": -1}
    return {"quantity": "an update", "sequence": -1}


@eqx.filter_jit
def _loss_and_gradient(
    model: Model, key: PRNGKeyArray, batch: Batch, num_sequences: int
) -> tuple[tuple, Bound]:
    return eqx.filter_value_and_grad(loss, has_aux=True)(model, key, batch, num_sequences)
