"""What a reproduction leaves: numbers in JSON, and the page and the picture that are made of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from svae.cards import read_card, write_card

Row = dict[str, Any]
SAME = "budget", "data", "network"  # what rows must share to stand in one table


class Shown(NamedTuple):
    """Rows for people."""

    title: str
    text: str  # Markdown
    figure: Figure


@dataclass(frozen=True)
class Results:
    """Files named `out` with several endings.

    `.json` is a list of rows, one for each part that can be done by itself; parts that are there are not done
    again. `-about.json` is what all rows share, and `-reading.md` what a person makes of them. Folder `out`
    holds what is not worth keeping for ever: runs.
    """

    out: Path
    key: tuple[str, ...]  # names of what tells rows apart

    @property
    def path(self) -> Path:
        """The rows."""
        return self._beside(".json")

    def rows(self) -> list[Row]:
        """In the order in which they came."""
        if not self.path.exists():
            return []
        try:
            rows = json.loads(self.path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} is not valid JSON: {error}") from None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"{self.path} must hold a list of rows")
        return rows

    def about(self) -> dict[str, Any]:
        """What all rows share."""
        path = self._beside("-about.json")
        return read_card(path) if path.exists() else {}

    def reading(self) -> str:
        """What a person makes of the rows, in `-reading.md`; nothing if nobody has read them."""
        path = self._beside("-reading.md")
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""

    def has(self, *values: Any) -> bool:
        """Whether there is a row with this key."""
        return any(self._key(row) == values for row in self.rows())

    def add(self, row: Row) -> None:
        """A new row, or one in the place of an old one."""
        rows, key = self.rows(), self._key(row)
        known = [self._key(x) for x in rows]
        place = known.index(key) if key in known else len(rows)
        rows[place : place + 1] = [row]
        write_card(self.path, rows)

    def settle(self, **about: Any) -> None:
        """What all rows share from now on; an error if those that are there have something else."""
        self.require(**about)
        write_card(self._beside("-about.json"), self.about() | about)

    def require(self, **about: Any) -> None:
        """An error if the rows that are there do not go together with this."""
        known = self.about() if self.rows() else {}
        for name in SAME:
            if name in known and name in about and known[name] != about[name]:
                raise ValueError(
                    f"{self.path} holds results with {name} '{known[name]}', and these would have "
                    f"'{about[name]}': choose another --out"
                )

    def show(self, shown: Shown) -> tuple[Path, Path]:
        """The page and the picture."""
        page, picture = self._beside(".md"), self._beside(".png")
        shown.figure.savefig(picture, dpi=150)
        page.write_text(markdown(shown, picture.name, "#"), encoding="utf-8")
        return page, picture

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in self.key)

    def _beside(self, ending: str) -> Path:
        return self.out.with_name(self.out.name + ending)


def markdown(shown: Shown, picture: str, heading: str) -> str:
    """One section, with its picture."""
    return f"{heading} {shown.title}\n\n{shown.text}\n\n![{shown.title}]({picture})\n"
