"""Models against each other: all trained on the same recordings, all scored on the same others."""

from svae.contest.budgets import BUDGETS as BUDGETS
from svae.contest.budgets import Budget as Budget
from svae.contest.contest import Contest as Contest
from svae.contest.contest import feature_network as feature_network
from svae.contest.contest import hold as hold
from svae.contest.contest import run_folder as run_folder
from svae.contest.contest import train_and_score as train_and_score
from svae.contest.contest import trained as trained
from svae.contest.table import as_json as as_json
from svae.contest.table import as_markdown as as_markdown
