"""Cards are JSON that any program can read."""

import json
from pathlib import Path

import numpy as np
import pytest

from svae.cards import read_card, write_card


def never(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_what_json_does_not_know_is_null_or_a_text(tmp_path):
    path = tmp_path / "new" / "card.json"
    value = {
        "nan": np.float32("nan"),
        "all": [np.inf, 1.5, (np.int64(2), True)],
        "where": Path("a"),
        "no": None,
    }
    write_card(path, value)
    text = path.read_text()
    assert json.loads(text, parse_constant=never) == {
        "nan": None,
        "all": [None, 1.5, [2, True]],
        "where": "a",
        "no": None,
    }
    assert [x.name for x in path.parent.iterdir()] == ["card.json"]


@pytest.mark.parametrize(("text", "message"), [("{", "not valid JSON"), ("[1]", "names and values")])
def test_a_card_that_is_none_is_named(tmp_path, text, message):
    path = tmp_path / "card.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_card(path)
    assert str(path) in str(error.value)
