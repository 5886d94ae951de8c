"""A run folder's results: the model, the segments, a summary and a page to look at."""

from pathlib import Path
from typing import Any

from svae import application
from svae.cards import write_card
from svae.data import Recordings
from svae.report import write_report
from svae.results.page import make_page
from svae.results.page import report_for as report_for
from svae.results.summary import about_run, advice, segmentation
from svae.segments import write_segments
from svae.training.artifact import Fitted, save_fitted


def write_results(
    fitted: Fitted, recordings: Recordings, folder: Path, title: str, seconds: float
) -> dict[str, Any]:
    """Write everything that a user wants to find in the run folder; returns the summary."""
    folder = Path(folder)
    save_fitted(fitted, folder / "model")
    readings = application.read(fitted, recordings)
    summary = about_run(fitted, recordings, folder, readings) | {"seconds": round(seconds, 1)}
    found = segmentation(readings)
    if found:
        write_segments(application.table(fitted, recordings, found), folder)
    page = make_page(fitted, recordings, folder, title, dict(summary), readings)
    summary["warnings"] = advice(summary, fitted.config.model.num_states)
    write_card(folder / "summary.json", summary)
    write_report(page, folder / "report.html")
    return summary
