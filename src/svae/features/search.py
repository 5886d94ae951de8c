"""The paper's search for a residual classifier: depth, width and activation, by Optuna."""

from types import ModuleType
from typing import Any, NamedTuple

from svae.features.artifact import FeatureNetwork
from svae.features.labelled import LabelledWindows
from svae.features.training import RECIPE, Recipe, Say, train_classifier


class Space(NamedTuple):
    """What may be chosen. The paper names the three; their ranges are not known."""

    depths: tuple[int, ...] = (2, 3, 4, 5, 6)
    widths: tuple[int, ...] = (32, 64, 128, 256)
    activations: tuple[str, ...] = ("relu", "gelu", "silu", "elu")


SPACE = Space()


class Trial(NamedTuple):
    """What was tried, and what came of it."""

    options: dict[str, Any]
    accuracy: float


class Found(NamedTuple):
    """The best network, trained, and all trials in their order."""

    network: FeatureNetwork
    trials: tuple[Trial, ...]


def search_residual(
    windows: LabelledWindows,
    trials: int,
    recipe: Recipe = RECIPE,
    logarithm: bool = False,
    space: Space = SPACE,
    say: Say = lambda line: None,
) -> Found:
    """Train as many networks and keep that with the highest accuracy on held-out windows.

    All have the same windows held out. As these now choose a network, its accuracy is a little too high.
    """
    if trials < 1:
        raise ValueError(f"a search has at least one trial, got {trials}")
    optuna = _optuna()
    done: list[Trial] = []
    best: list[FeatureNetwork] = []

    def objective(trial: Any) -> float:
        options = {
            "depth": trial.suggest_categorical("depth", space.depths),
            "width": trial.suggest_categorical("width", space.widths),
            "activation": trial.suggest_categorical("activation", space.activations),
        }
        network = train_classifier(windows, "residual", options, recipe, logarithm)
        done.append(Trial(options, network.accuracy))
        if not best or network.accuracy > best[0].accuracy:
            best[:] = [network]
        chosen = ", ".join(f"{name} {value}" for name, value in options.items())
        say(f"trial {len(done)} of {trials}: {chosen}: held-out accuracy {network.accuracy:.1%}")
        return network.accuracy

    sampler = optuna.samplers.TPESampler(seed=recipe.seed)
    loudness = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # `say` tells what there is to tell
    try:
        optuna.create_study(direction="maximize", sampler=sampler).optimize(objective, n_trials=trials)
    finally:
        optuna.logging.set_verbosity(loudness)
    return Found(best[0], tuple(done))


def _optuna() -> ModuleType:
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ValueError(f"the search needs {error.name}: pip install 'svae[search]'") from None
    return optuna
