"""All settings of a fit, typed: from keywords, from a TOML file, from `a.b=c` on the command line.

Unknown names are errors that tell the nearest valid one; the resolved settings are written to the run.
"""

import difflib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from svae.durations import frames_from_duration


def _possible_duration(value: Any) -> Any:
    if value is not None:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"a duration is a number of frames or a text such as 0.5s, got {value}")
        frames_from_duration(value, 1.0, "a duration")
    return value


# A number of frames, or a text with a unit.
Duration = Annotated[float | str, BeforeValidator(_possible_duration)]


class ConfigError(ValueError):
    """A setting that does not exist or cannot be."""


class Section(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class DataSettings(Section):
    """What the model sees of the recordings."""

    path: str | None = Field(None, description="File, folder, or the name of a built-in data set.")
    split: Literal["train", "valid", "test"] | None = Field(
        None, description="Part of a data set that has splits; all of it if not given."
    )
    rate: PositiveFloat | None = Field(None, description="Frames per second, where the data do not say.")
    window: Duration | None = Field(
        None, description="Length of training windows; whole recordings if not given."
    )
    stride: Duration | None = Field(
        None, description="From the beginning of one training window to the next; if not given, its length."
    )
    standardise: Literal["channel", "global", "none"] = Field(
        "channel", description="Channels to unit variance each, to a common scale, or as they are."
    )
    labels: bool = Field(
        False, description="Hold labelled frames to their labels, which are the first states then."
    )
    held_out: float = Field(
        0.0, ge=0, lt=1, description="Share of the windows that only tell which model is best."
    )


class ModelSettings(Section):
    """The model."""

    kind: Literal[
        "svae", "srnn", "dks", "dks-concrete", "dks-straight-through", "transformer-dvae", "vq-vae"
    ] = Field("svae", description="All but svae have networks only: no graph, one stage of training.")
    graph: Literal["slds", "jslds", "hsmm-slds", "lds", "hmm", "mixture", "normal"] = Field(
        "slds", description="The graphical model of an svae; normal is the plain VAE."
    )
    num_states: PositiveInt = Field(20, description="States to start from; unused ones are dropped.")
    latent_dim: PositiveInt = Field(4, description="Dimensions of the latent path.")
    typical_duration: Duration | None = Field(None, description="How long a state lasts before it changes.")
    likelihood: Literal["gaussian", "gamma", "bernoulli", "poisson", "categorical"] = "gaussian"
    num_classes: PositiveInt | None = Field(None, description="Of a categorical likelihood.")
    linear: bool = Field(
        True, description="Networks learn what principal components leave; false is the paper's networks."
    )
    hidden: tuple[PositiveInt, ...] = Field((256, 128), description="Hidden layers of the encoder.")
    precision_per_step: bool = Field(
        False, description="Whether the encoder gives a precision for each step."
    )
    own_recognition: bool = Field(
        False, description="Inference by dynamics that share nothing with the model's (SIN): lds and slds."
    )
    own_starts: bool = Field(
        False, description="Whether each state has a place of its own where paths begin: slds."
    )
    form: Literal["sequential", "parallel", "kernel"] | None = Field(
        None, description="Algorithm of inference in time; None: the fastest on this machine."
    )


class PretrainSettings(Section):
    """Stage 1: networks with a simple prior."""

    persistence: float = Field(
        0.95, ge=0, lt=1, description="Prior correlation of successive steps; 0 is the plain VAE."
    )
    steps: int = Field(1000, ge=0)
    network_rate: PositiveFloat = 5e-3
    noise_rate: PositiveFloat = 3e-2
    frames: PositiveInt = Field(25, description="Length of the pieces that are mixed in a batch.")
    batch_size: PositiveInt = Field(128, description="Pieces in a step.")


class DynamicsSettings(Section):
    """Stage 2: the AR-HMM on encoded sequences."""

    sequences: int = Field(100, ge=0, description="How many are encoded; 0 leaves the stage out.")
    laps: PositiveInt = 50
    restarts: PositiveInt = 1
    births: int = Field(3, ge=0, description="Attempts to split a state after each lap.")
    innovation: PositiveFloat = Field(1.0, description="Prior variance of a step, relative to what is seen.")
    shared: float = Field(
        0.0, ge=0, description="Frames' worth of what all frames show, in the prior of each state's dynamics."
    )


class JointSettings(Section):
    """Stage 3: everything together."""

    steps: int = Field(1000, ge=0)
    network_rate: PositiveFloat = 2e-4
    noise_rate: PositiveFloat = 2e-3
    graph_rate: PositiveFloat = 0.005
    gradient: Literal["unbiased", "biased", "plain"] = "unbiased"
    adjoint: Literal["richardson", "conjugate-gradients", "no-solve", "unrolled"] = Field(
        "richardson", description="How gradients pass through inference."
    )
    max_sweeps: PositiveInt = 10
    tolerance: float = Field(1e-3, ge=0, description="Nats between sweeps at which inference has converged.")
    patience: PositiveInt | None = Field(
        None, description="Records without a better bound, of held-out data if there are any, that end it."
    )


class Config(Section):
    """Everything."""

    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    pretrain: PretrainSettings = PretrainSettings()
    dynamics: DynamicsSettings = DynamicsSettings()
    joint: JointSettings = JointSettings()
    batch_size: PositiveInt = Field(32, description="Windows in a step.")
    chunk: PositiveInt = Field(
        25, description="Steps in one program, and between records; their batches are on the device together."
    )
    seed: int = 0


def make_config(values: dict[str, Any]) -> Config:
    """Typed settings from nested dictionaries."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_readable(error)) from None


def load_config(path: Path) -> Config:
    """Settings from a TOML file."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    return make_config(values)


def override(config: Config, assignments: list[str]) -> Config:
    """With `section.name=value` texts applied."""
    values = config.model_dump(mode="json")
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not separator:
            raise ConfigError(f"settings look like section.name=value, got '{assignment}'")
        *path, last = name.strip().split(".")
        place = values
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{name}: '{part}' is a setting, not a section")
        place[last] = _value(text.strip())
    return make_config(values)


def _value(text: str) -> Any:
    """Numbers, booleans and lists as in TOML; null as no value; anything else is a text."""
    if text.lower() == "null":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def write_config(config: Config, path: Path) -> None:
    """As TOML; settings without a value are left out."""
    import tomli_w

    path.parent.mkdir(parents=True, exist_ok=True)
    values = config.model_dump(mode="json", exclude_none=True)
    path.write_text(tomli_w.dumps(values), encoding="utf-8")


def _readable(error: ValidationError) -> str:
    return "; ".join(_problem(item) for item in error.errors())


def _problem(item: Any) -> str:
    path = [str(part) for part in item["loc"]]
    if item["type"] == "value_error":  # ours, and complete
        return f"{'.'.join(path)}: {item['ctx']['error']}"
    if item["type"] != "extra_forbidden":
        message = item["msg"][:1].lower() + item["msg"][1:]
        return f"{'.'.join(path)}: {message}, got {json.dumps(item['input'], default=str)}"
    inside = item["input"]
    while isinstance(inside, dict) and inside:  # a section that does not exist: name what is in it
        part, inside = next(iter(inside.items()))
        path.append(part)
    name = ".".join(path)
    names = _names(Config)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not near:  # the right name in the wrong section
        last = {x.split(".")[-1]: x for x in names}
        near = [last[x] for x in difflib.get_close_matches(path[-1], list(last), n=1, cutoff=0.5)]
    sections = ", ".join(dict.fromkeys(x.split(".")[0] for x in names if "." in x))
    hint = f"did you mean '{near[0]}'?" if near else f"settings are in the sections {sections}"
    return f"there is no setting '{name}'; {hint}"


def _names(section: type[BaseModel], prefix: str = "") -> list[str]:
    names = []
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            names += _names(inner, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


def differing_settings(configs: dict[str, Config]) -> dict[str, dict[str, Any]]:
    """By name of the run: the settings, as `section.name`, that are not the same in all of them."""
    flat = {name: _flat(config.model_dump(mode="json")) for name, config in configs.items()}
    first = next(iter(flat.values()))
    differing = [key for key in first if any(values[key] != first[key] for values in flat.values())]
    return {name: {key: values[key] for key in differing} for name, values in flat.items()}


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one, with names joined by points."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
