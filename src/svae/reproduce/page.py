"""All results of a folder as one page."""

import os
from pathlib import Path

from svae.reproduce.registry import ENTRIES
from svae.reproduce.results import Results, markdown
from svae.reproduce.run import module_of, shown

OPENING = """# Results

What `svae reproduce NAME` found, beside the paper's numbers. This page is made of the rows in `results/` by
`svae reproduce --from-results`; what is not there has not been run. Where the paper's data are licensed, open
ones stand in their place, and captions say so: then orders of models can be compared, and numbers cannot.
"""


def write_page(folder: Path, page: Path) -> list[str]:
    """Pages and pictures of all results in the folder, and one page of them all; the names that are there."""
    found = [name for name in ENTRIES if (folder / f"{name}.json").exists()]
    if not found:
        raise ValueError(f"there are no results in {folder}: run svae reproduce NAME first")
    page.parent.mkdir(parents=True, exist_ok=True)
    parts = [OPENING]
    for name in found:
        results = Results(folder / name, module_of(name).KEY)
        own = shown(name, results)
        _, picture = results.show(own)
        parts.append(markdown(own, os.path.relpath(picture, page.parent), "##"))
        command = results.about().get("command")
        parts.append(f"`{command}`\n" if command else "")
    page.write_text("\n".join(filter(None, parts)), encoding="utf-8")
    return found
