"""How inference ended, recording by recording, and the settings of the run."""

from collections.abc import Sequence
from html import escape

from svae.report.markup import number, tag
from svae.report.parts import Certificate

MOST_ROWS = 300


def convergence_warning(certificates: Sequence[Certificate]) -> list[str]:
    """One sentence if inference of any recording ended too soon."""
    missed = sum(not x.converged for x in certificates)
    if not missed:
        return []
    which = "the recording" if len(certificates) == 1 else f"{missed} of {len(certificates)} recordings"
    return [
        f"Inference did not converge for {which}: state probabilities there are approximate. Raise "
        "joint.max_sweeps; the residuals are under Inference."
    ]


def certificates_table(certificates: Sequence[Certificate]) -> str:
    """A row for each recording, what did not converge first."""
    if not certificates:
        return ""
    ordered = sorted(certificates, key=lambda x: (x.converged, -x.residual))
    rows = [_row(x) for x in ordered[:MOST_ROWS]]
    heads = [tag("th", "recording"), tag("th", "converged")]
    heads += [tag("th", name, class_="number") for name in ("sweeps", "residual (nats)")]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    left_out = len(ordered) - MOST_ROWS
    more = tag("p", f"and {left_out:,} more, with smaller residuals", class_="small") if left_out > 0 else ""
    good = sum(x.converged for x in certificates)
    sweeps = sorted(x.sweeps for x in certificates)
    say = (
        f"Converged for {good:,} of {len(certificates):,} recordings, in {sweeps[0]} to {sweeps[-1]} sweeps."
    )
    return tag("p", say, class_="note") + _folded("Recording by recording", table + more, "table tall")


def settings(config: str) -> str:
    """The settings as text, folded."""
    return _folded("Settings of the run", tag("pre", escape(config)), "table") if config.strip() else ""


def _row(certificate: Certificate) -> str:
    mark = "yes" if certificate.converged else tag("strong", "no", class_="bad")
    cells = [tag("td", escape(certificate.recording)), tag("td", mark)]
    cells += [tag("td", number(x), class_="number") for x in (certificate.sweeps, certificate.residual)]
    return tag("tr", *cells)


def _folded(title: str, content: str, kind: str) -> str:
    return tag("details", tag("summary", title), tag("div", content, class_="scroll"), class_=kind)
