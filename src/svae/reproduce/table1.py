"""Table 1: the time of a gradient step, beside the paper's and that of the authors' code."""

from typing import Any

from matplotlib.figure import Figure

from svae.bench import table1
from svae.bench.published import AUTHORS_H200, PAPER
from svae.plots import INK, PALETTE, plain_axes
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown
from svae.words import number, table

KEY = "method", "batch"
SIZES = {
    "tiny": table1.Sizes(num_steps=10, num_states=3, latent_dim=2, num_features=4, sweeps=3, repeats=2),
    "small": table1.Sizes(repeats=3),
    "full": table1.Sizes(),
}


def measure(request: Request, results: Results) -> None:
    """All methods that make sense on this machine, for all batch sizes."""
    sizes = SIZES[request.budget]
    results.settle(**request.about(sizes=sizes._asdict()))
    batches = [1] if request.budget == "tiny" else table1.default_batches()
    for batch in batches:
        for method in table1.default_methods():
            if not results.has(method, batch):
                results.add(table1.measure(sizes, method, batch, request.say))


def show(rows: list[Row], about: dict[str, Any]) -> Shown:
    """Milliseconds; the paper's are those of an A10G."""
    lines = [
        ["method", "batch", "device", "ms", "GiB", "compile, s", "the authors' code, H200", "the paper, A10G"]
    ]
    for row in sorted(rows, key=lambda row: (row["method"], row["batch"])):
        own = [number(row.get(name)) for name in ("median_ms", "peak_gib", "compile_s")]
        plain = row["method"].replace("kernel", "parallel")
        theirs = [source.get(plain, {}).get(row["batch"], "-") for source in (AUTHORS_H200, PAPER)]
        cells = ["out of memory" if x is None else str(x) for x in theirs]
        lines.append([row["method"], str(row["batch"]), row["device"], *own, *cells])
    sizes = about.get("sizes", table1.Sizes()._asdict())
    text = (
        f"A gradient step of an SVAE-SLDS with K={sizes['num_states']}, D={sizes['latent_dim']}, "
        f"T={sizes['num_steps']}, {sizes['sweeps']} sweeps, networks included. *implicit* is the capped "
        "gradient; kernel is a form of parallel that the paper does not have, and stands beside its "
        "parallel. Other people's numbers are for K=50, D=16, T=250."
    )
    return Shown("Table 1, time of a gradient step", f"{text}\n\n{table(lines)}", _figure(rows))


def _figure(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = plain_axes(figure.subplots())
    measured = [row for row in rows if row.get("median_ms") is not None]
    for colour, method in zip(PALETTE, dict.fromkeys(row["method"] for row in measured), strict=False):
        own = sorted((row["batch"], row["median_ms"]) for row in measured if row["method"] == method)
        axes.plot(*zip(*own, strict=True), "o-", color=colour, label=f"{method}, {measured[0]['device']}")
    for name, source, style in (
        ("the authors' code, H200", AUTHORS_H200, "s--"),
        ("the paper, A10G", PAPER, "D:"),
    ):
        known = [(batch, ms) for batch, ms in source["implicit, parallel"].items() if ms is not None]
        axes.plot(*zip(*known, strict=True), style, color="0.5", label=f"implicit, parallel: {name}")
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("sequences in a batch", color=INK)
    axes.set_ylabel("ms of a gradient step", color=INK)
    axes.legend(fontsize=8, frameon=False)
    return figure
