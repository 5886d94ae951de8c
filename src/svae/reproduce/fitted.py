"""Models of the second table for the figures that show them: those that were trained, or trained now."""

from collections.abc import Iterator, Sequence

from svae.contest import run_folder, trained
from svae.reproduce.efforts import config_for
from svae.reproduce.material import Material
from svae.reproduce.request import Request
from svae.training.artifact import Fitted
from svae.training.loop import TrainingError

TABLES = {"mocap": "table2-mocap", "speech": "table2-speech"}
SEED = 0  # of the runs that are shown


def models_of(
    kind: str, material: Material, request: Request, names: Sequence[str]
) -> Iterator[tuple[str, Fitted]]:
    """Each model, from the runs of the table beside this figure; one that cannot be trained is left out."""
    folder = request.beside(TABLES[kind])
    for name in names:
        config = config_for(material.task, material.effort, material.data, name, SEED)
        say = lambda what: request.say(f"{name}: {what}")
        try:
            yield (
                name,
                trained(run_folder(folder, name, SEED), config, material.training, say, request.watching),
            )
        except TrainingError as error:
            say(f"could not be trained: {error}")
