"""Models against each other: all trained on the same recordings, all scored on the same others."""

from svae.contest.budgets import BUDGETS as BUDGETS
from svae.contest.budgets import Budget as Budget
from svae.contest.contest import Contest as Contest
from svae.contest.contest import hold as hold
from svae.contest.table import as_json as as_json
from svae.contest.table import as_markdown as as_markdown
