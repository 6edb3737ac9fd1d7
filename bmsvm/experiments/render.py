"""The table as text, for a terminal and as Markdown."""

from __future__ import annotations

from typing import Any

from bmsvm.experiments.cells import ROWS
from bmsvm.experiments.printed import PRINTED, printed_error
from bmsvm.experiments.protocol import DATA

__all__ = ["markdown", "terminal"]

HEADER = ("row", "data", "theta", "error", "printed", "log-loss", "R-hat", "fits", "CPU time")

NOTES = """\
Errors and log-losses with one standard error: over the rows where one is left out at a time, over
the splits otherwise. R-hat: the median over the fits, and the largest, of each fit's worst of log
sigma2, log tau, log theta and functions at predicted rows, from the halves of its chains: one where
a row is left out or the algorithm is the printed one, four otherwise. CPU time: of one core,
compiling included. *: by importance sampling from one run of four chains on all rows. The row "all
rows" has no stationary distribution; what it prints depends on when it is stopped. The printed
number beside rows of this package is BMSVM's, and the one vehicle column stands beside both
versions of the data."""


def _number(value: float | None, spread: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if spread is None else f"{value:.4f} ± {spread:.4f}"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.1f} min"


def _line(found: dict[str, Any]) -> tuple[str, ...]:
    star = "*" if "pareto_k_largest" in found else ""
    r_hat = ""
    if "r_hat_median" in found:
        r_hat = f"{found['r_hat_median']:.2f}, {found['r_hat_largest']:.2f}"
    return (
        ROWS[found["row"]].title,
        found["data"],
        found["theta"],
        _number(found["error"], found["error_standard_error"]) + star,
        f"{printed_error(found['row'], found['data']):.4f}"
        + ("" if found["row"] in PRINTED else " (BMSVM)"),
        _number(found["log_loss"], found["log_loss_standard_error"]),
        r_hat,
        str(found["n_fits"]),
        _seconds(found.get("cpu_seconds", found["seconds"])),
    )


def _lines(cells: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows, data = list(ROWS), list(DATA)
    order = sorted(cells, key=lambda c: (data.index(c["data"]), rows.index(c["row"]), c["theta"]))
    return [_line(found) for found in order]


def terminal(cells: list[dict[str, Any]]) -> str:
    """Return the table in columns."""
    lines = [HEADER, *_lines(cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    padded = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    padded.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(padded) + "\n"


def markdown(cells: list[dict[str, Any]], command: str) -> str:
    """Return the table as Markdown, with the command that makes it."""
    lines = [f"`{command}`", "", _bars(HEADER), _bars(["---"] * len(HEADER))]
    lines += [_bars(line) for line in _lines(cells)]
    return "\n".join([*lines, "", NOTES.replace("*:", "\\*:"), ""])


def _bars(texts: Any) -> str:
    return "| " + " | ".join(str(text).replace("*", "\\*") for text in texts) + " |"
