"""Training a feature network to tell labelled windows apart."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae.data import DataError
from svae.features.artifact import FeatureNetwork, make_settings, untrained
from svae.features.classifier import MOMENTS, WEIGHTS, Classifier, groups
from svae.features.inputs import Inputs
from svae.features.labelled import LabelledWindows
from svae.features.splitting import held_out
from svae.training.loop import TrainingError

FOLLOWING = 0.1  # how far batch normalisation's stored moments go towards those of each batch
REPORTS = 10  # about how often training tells where it is

Say = Callable[[str], None]


class Recipe(NamedTuple):
    """How to train. The share of held-out windows is the paper's; the rest it does not tell."""

    epochs: int = 50
    batch_size: int = 64
    rate: float = 1e-3  # of the first step; it falls to zero along a cosine
    decay: float = 1e-2
    held_out: float = 0.25
    seed: int = 0


RECIPE = Recipe()


class Examples(NamedTuple):
    """Windows on the device, as the network sees them."""

    values: Float[Array, "windows time channels"]
    lengths: Int[Array, "windows"]
    labels: Int[Array, "windows"]


def train_classifier(
    windows: LabelledWindows,
    kind: str = "residual",
    options: dict[str, Any] | None = None,
    recipe: Recipe = RECIPE,
    logarithm: bool = False,
    say: Say = lambda line: None,
) -> FeatureNetwork:
    """A network of this kind with the weights after the last epoch; its accuracy is that on held-out windows.

    These choose nothing, neither weights nor scale of the inputs, so that the accuracy is an honest one.
    With the same seed, on the same machine, the result is the same. All windows are on the device at once.
    """
    _require_classes(windows)
    if recipe.epochs < 1 or recipe.batch_size < 1:
        raise ValueError(f"epochs and batch_size must be positive, got {recipe.epochs}, {recipe.batch_size}")
    aside = held_out(windows.labels, windows.recording, recipe.held_out, recipe.seed)
    seen, unseen = windows.select(~aside), windows.select(aside)
    inputs = Inputs.fit(seen, logarithm)
    examples = Examples(
        jnp.asarray(inputs.apply(seen.values)),
        jnp.asarray(seen.lengths, jnp.int32),
        jnp.asarray(seen.labels, jnp.int32),
    )
    batch_size = min(recipe.batch_size, len(seen))
    key, order_key = jax.random.split(jax.random.key(recipe.seed))
    settings = make_settings(kind, windows.channels, windows.classes, windows.values.shape[1], options)
    optimiser = make_optimiser(recipe, recipe.epochs * (len(seen) // batch_size))
    network = eqx.filter_jit(lambda key: untrained(settings, key))(key)
    state = optimiser.init(network)
    found = FeatureNetwork(network, settings, inputs, float("nan"))
    for epoch in range(1, recipe.epochs + 1):
        epoch_key = jax.random.fold_in(order_key, epoch)
        network, state, loss = run_epoch(network, state, examples, epoch_key, optimiser, batch_size)
        if not np.isfinite(loss):
            raise TrainingError(f"the loss of epoch {epoch} is not finite; lower the learning rate")
        if epoch % max(1, recipe.epochs // REPORTS) == 0 or epoch == recipe.epochs:
            found = replace(found, network=network)
            share = np.mean(found.classify(unseen.values, unseen.lengths) == unseen.labels)
            found = replace(found, accuracy=float(share))
            say(
                f"epoch {epoch} of {recipe.epochs}: loss {loss:.3f}, held-out accuracy {share:.1%} "
                f"of {len(unseen)} windows"
            )
    return found


def _require_classes(windows: LabelledWindows) -> None:
    if len(windows.classes) < 2:
        raise DataError(f"a classifier needs two classes or more; these windows have {len(windows.classes)}")
    if np.max(np.bincount(windows.labels)) < 2:
        raise DataError("every class has a single window: there is none to hold out; cut shorter windows")


def make_optimiser(recipe: Recipe, steps: int) -> optax.GradientTransformation:
    """AdamW for weights, of which only matrices decay; a running average for the stored moments.

    The gradient of a stored moment is its distance from that of the batch (see `svae.features.layers`).
    """
    matrices = lambda tree: jax.tree.map(lambda x: x.ndim > 1, tree)
    rate = optax.cosine_decay_schedule(recipe.rate, max(steps, 1))
    weights = optax.adamw(rate, weight_decay=recipe.decay, mask=matrices)
    return optax.partition({WEIGHTS: weights, MOMENTS: optax.sgd(FOLLOWING)}, groups)


def loss(network: Classifier, batch: Examples, key: PRNGKeyArray) -> Float[Array, ""]:
    """Nats by which the right class is missed, on average."""
    scores = network(batch.values, batch.lengths, key)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores, batch.labels))


@eqx.filter_jit
def run_epoch(
    network: Classifier,
    state: Any,
    examples: Examples,
    key: PRNGKeyArray,
    optimiser: optax.GradientTransformation,
    batch_size: int,
) -> tuple[Classifier, Any, Float[Array, ""]]:
    """Every window once, in random order, in one program; what does not fill a batch sits it out."""
    count = len(examples.labels) // batch_size
    order_key, noise_key = jax.random.split(key)
    order = jax.random.permutation(order_key, len(examples.labels))[: count * batch_size]
    arrays, rest = eqx.partition((network, state), eqx.is_array)

    def step(arrays, item):
        which, key = item
        network, state = eqx.combine(arrays, rest)
        batch = jax.tree.map(lambda x: x[which], examples)
        value, gradient = eqx.filter_value_and_grad(loss)(network, batch, key)
        updates, state = optimiser.update(gradient, state, network)
        return eqx.filter((eqx.apply_updates(network, updates), state), eqx.is_array), value

    items = order.reshape(count, batch_size), jax.random.split(noise_key, count)
    arrays, values = lax.scan(step, arrays, items)
    return *eqx.combine(arrays, rest), jnp.mean(values)
