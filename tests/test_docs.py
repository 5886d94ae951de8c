"""The pages for users: links lead somewhere, Python is Python, settings exist, excerpts are up to date."""

import ast
import re
import textwrap
from pathlib import Path

import pytest

from svae.config import Config, override

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def text_of(page):
    return page.read_text(encoding="utf-8")


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", text_of(page), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pages
def test_relative_links_lead_somewhere(page):
    for place, anchor in re.findall(r"\]\(([^)\s#]*)#?([^)\s]*)\)", text_of(page)):
        if "://" in place:
            continue
        target = (page.parent / place) if place else page
        assert target.exists(), place
        assert not anchor or anchor in anchors(target), f"{place}#{anchor}"


@pages
def test_python_blocks_compile(page):
    for block in python_blocks(page):
        ast.parse(block)


@pages
def test_settings_exist(page):
    given = re.findall(r"--set '?([a-z_.]+=[^\s`',;)]+)", text_of(page))
    override(Config(), given)  # raises at a name or a value that cannot be


def test_excerpts_are_those_of_the_example():
    example = (ROOT / "examples/coupled_chains.py").read_text(encoding="utf-8")
    page = ROOT / "docs/add-a-model.md"
    excerpts = [block for block in python_blocks(page) if "(self" in block.partition("\n    ")[0]]
    assert len(excerpts) >= 5
    for excerpt in excerpts:
        assert textwrap.indent(excerpt, "    ") in example
