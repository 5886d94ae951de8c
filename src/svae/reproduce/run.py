"""Measure what is missing, then write the page and the picture."""

import importlib
from pathlib import Path
from typing import Any

from svae.reproduce.registry import require_entry
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Shown


def module_of(name: str) -> Any:
    """Of an entry: `KEY` tells its rows apart, `measure(request, results)` adds those that are missing, and
    `show(rows, about)` makes them readable."""
    require_entry(name)
    return importlib.import_module(f"svae.reproduce.{name.replace('-', '_')}")


def reproduce(request: Request) -> tuple[Path, Path]:
    """The page and the picture; what was measured before stays."""
    module = module_of(request.name)
    request.out.parent.mkdir(parents=True, exist_ok=True)
    results = Results(request.out, module.KEY)
    results.require(budget=request.budget)  # before data are read
    module.measure(request, results)
    return from_results(request.name, request.out)


def from_results(name: str, out: Path) -> tuple[Path, Path]:
    """The same from what was measured, alone."""
    results = Results(out, module_of(name).KEY)
    return results.show(shown(name, results))


def shown(name: str, results: Results) -> Shown:
    """An entry's rows for people."""
    rows = results.rows()
    if not rows:
        raise ValueError(f"there are no results to show: {results.path} has no rows")
    about = results.about()
    found: Shown = module_of(name).show(rows, about)
    notes = [f"Note: {text}." for text in about.get("notes", [])]
    return found._replace(text="\n\n".join(filter(None, [found.text, results.reading(), *notes])))
