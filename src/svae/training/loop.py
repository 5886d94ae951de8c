"""The training loop: programs of many steps, one after the other, watched and kept alive."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from svae.models import Batch, Bound, Model
from svae.states import num_used
from svae.training.feeding import Feed
from svae.training.step import Metrics, TrainState, loss, next_batch, run_steps
from svae.training.windows import TrainingWindows

HELD_OUT = 0xF00D  # sets the noise of the bound of held-out data apart from that of the steps
Record = dict[str, Any]  # one line of the training log
Watch = Callable[[Record], None]


class Plan(NamedTuple):
    """How long to train, and how careful to be."""

    steps: int
    batch_size: int = 32
    chunk: int = 25  # steps in one program; a record is written for each
    patience: int | None = None  # chunks without a better bound that end training early
    most_failures: int = 5


class TrainingError(RuntimeError):
    """Training cannot go on; the message says what broke, where, and what may help."""


class Trained(NamedTuple):
    """The last state, and why training ended: "done", "plateau" or "interrupted"."""

    state: TrainState
    ending: str


def train(
    state: TrainState,
    data: Batch | TrainingWindows,
    key: PRNGKeyArray,
    optimiser: optax.GradientTransformation,
    plan: Plan,
    watch: Watch = lambda record: None,
    keep: Callable[[TrainState], None] = lambda state: None,
    held_out: Batch | TrainingWindows | None = None,
) -> Trained:
    """Train until `plan.steps`, a plateau or Ctrl-C. `keep` gets the state after each chunk, to store it.

    The bound that tells what is best is that of the `held_out` sequences, if there are any.
    """
    batch_size = min(plan.batch_size, data.num_sequences)
    feed = Feed(data, key, batch_size)
    count_at = lambda step: min(plan.chunk, plan.steps - step)
    following, batches = -1, None
    try:
        while (done := int(state.step)) < plan.steps:
            if batches is None or following != done:  # the first ones, or others after a failure
                batches = feed(done, count_at(done))
            state, metrics = run_steps(state, batches, key, optimiser, batch_size, count_at(done))
            following, batches = done + count_at(done), None
            if feed.cuts_on_host and following < plan.steps:  # while the device is at work
                batches = feed(following, count_at(following))
            if not np.asarray(metrics.finite).all():
                state = _recover(state, data, key, batch_size, plan, watch)
                continue
            record = {"step": int(state.step), **summarise(metrics)}
            if held_out is not None:
                record["held_out"] = _bound(state.model, key, held_out, data.num_sequences)
            state = _remember(state, record.get("held_out", record["elbo"]))
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
    return state._replace(
        best=jnp.asarray(best, jnp.float32),
        waited=jnp.asarray(waited, jnp.int32),
        best_model=state.model if better else state.best_model,
    )


def _bound(model: Model, key: PRNGKeyArray, data: Batch | TrainingWindows, num_sequences: int) -> float:
    """Nats per sequence, always with the same noise, so that models are compared and not draws."""
    total = 0.0
    for number, batch in enumerate([data] if isinstance(data, Batch) else data.parts()):
        value, _ = _loss(model, jax.random.fold_in(key, HELD_OUT + number), batch, num_sequences)
        total -= float(value) * batch.num_sequences
    return total / data.num_sequences


_loss = eqx.filter_jit(loss)


def summarise(metrics: Metrics) -> Record:
    """Averages over a chunk, as plain numbers."""
    mean = lambda x: float(np.mean(np.asarray(x)))
    record: Record = {name: mean(getattr(metrics, name)) for name in ("elbo", "log_likelihood", "kl_local")}
    record["kl_parameters"] = mean(metrics.kl_parameters)
    for name, values in metrics.diagnostics.items():
        if name == "usage":
            record["states"] = num_used(np.asarray(values).mean(axis=0))
        else:
            record[name] = mean(values)
    return record


def _recover(
    state: TrainState,
    data: Batch | TrainingWindows,
    key: PRNGKeyArray,
    batch_size: int,
    plan: Plan,
    watch: Watch,
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


def explain(state: TrainState, data: Batch | TrainingWindows, key: PRNGKeyArray, batch_size: int) -> Record:
    """Which sequence of the next step's batch, and which quantity, is not finite."""
    coming = Feed(data, key, batch_size)(int(state.step), 1)
    which, batch, noise_key = next_batch(state, coming, key, batch_size)
    (_, bound), gradient = _loss_and_gradient(state.model, noise_key, batch, data.num_sequences)
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
) -> tuple[tuple[Array, Bound], Model]:
    return eqx.filter_value_and_grad(loss, has_aux=True)(model, key, batch, num_sequences)
