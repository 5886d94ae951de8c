"""All settings of the paper's second table, and how much of it each budget does."""

from dataclasses import dataclass, field

from svae.config import Config, override
from svae.presets import with_model


@dataclass(frozen=True)
class Task:
    """One half of the table: data and what suits them."""

    original: str  # what the paper has, and what stands in the place of it
    features_original: str  # what its feature network was trained on
    window: int  # frames
    noise: float = 0.0  # standard deviation, added to all data
    steps: int | None = None  # of the last stage, at most
    changes: tuple[str, ...] = ()
    own: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by model


@dataclass(frozen=True)
class Effort:
    """Limits on data, training and scoring."""

    changes: tuple[str, ...]
    window: int = 10_000  # frames at most
    train_stride: float = 0.1  # in windows
    test_stride: float = 0.2
    training: int | None = None  # windows, at most
    test: int | None = None
    sets: int = 5  # of samples, independent of each other, behind each distance and its spread
    together: int = 64  # windows in one program
    epochs: int = 30  # of the feature network
    width: int = 128  # of its features


# Windows begin in the midst of actions and of words, so each state has its own place where they do
PLACED = ("model.own_starts=true",)
TASKS = {
    # A millimetre of noise, as in the paper: joints that hardly move would have densities without bounds
    "mocap": Task(
        "Human3.6M",
        "Human3.6M",
        window=250,
        noise=1e-3,
        # Frames, as long as an action. States that may change at every frame become speeds rather than
        # motions, and what is drawn from them wanders.
        own={"svae-slds": ("model.typical_duration=250", *PLACED)},
    ),
    "speech": Task(
        "WSJ0",
        "CREMA-D",
        window=50,
        # Windows are few: training ends when those that are set aside gain nothing in twenty chunks of steps
        changes=("model.likelihood=gamma", "data.held_out=0.1", "joint.patience=20"),
        steps=3000,
        own={"svae-slds": PLACED},
    ),
}
PAPER = (  # sizes, batch and rates of the paper, for all models
    *("model.num_states=50", "model.latent_dim=16", "model.linear=false", "model.hidden=[256, 128]"),
    *("batch_size=128", "joint.network_rate=1e-3", "joint.noise_rate=1e-2", "dynamics.sequences=100"),
)
OWN = {  # what single models have of their own
    # States that are seen in few windows take from all what they do not know themselves
    "svae-slds": ("dynamics.shared=30",),
    "transformer-dvae": ("joint.network_rate=1e-4",),
    # All forms of inference give the same numbers, and the preset's would take hours on a GPU
    "svae-slds-bias": ("model.form=null",),
}
EFFORTS = {
    "tiny": Effort(
        changes=(
            *("model.num_states=4", "model.latent_dim=3", "batch_size=4", "chunk=2"),
            *("pretrain.steps=4", "joint.steps=4", "pretrain.batch_size=8"),
            *("dynamics.sequences=4", "dynamics.laps=2", "dynamics.births=0"),
        ),
        window=40,
        train_stride=1.0,
        test_stride=1.0,
        training=16,
        test=8,
        sets=2,
        together=4,
        epochs=1,
        width=6,
    ),
    # Minutes a model on a GPU; on a few cores most of the time goes to completions by many particles
    "small": Effort(
        changes=(
            *("batch_size=16", "pretrain.steps=1000", "joint.steps=300"),
            *("dynamics.sequences=50", "dynamics.laps=20"),
        ),
        training=600,
        test=48,
        sets=3,
        together=12,
        epochs=20,
        width=16,
    ),
    # A few minutes a model on an H200: a step with K=50, T=250 and B=128 takes 17 ms there.
    # The paper's 100 windows do not show all actions often enough to tell their states apart.
    "full": Effort(
        changes=(
            *("pretrain.steps=2000", "joint.steps=6000", "chunk=100"),
            *("dynamics.sequences=500", "dynamics.laps=20", "dynamics.births=0"),
        ),
        together=192,
    ),
}


def config_for(task: Task, effort: Effort, data: str, model: str, seed: int) -> Config:
    """The settings of one run."""
    window = min(task.window, effort.window)
    changes = [*PAPER, *task.changes, *effort.changes, f"data.window={window}", f"seed={seed}"]
    config = override(Config(), changes)
    if task.steps is not None:
        config = override(config, [f"joint.steps={min(task.steps, config.joint.steps)}"])
    config = config.model_copy(update={"data": config.data.model_copy(update={"path": data})})
    return override(with_model(config, model), [*OWN.get(model, ()), *task.own.get(model, ())])
