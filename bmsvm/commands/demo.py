"""``bmsvm demo``: fit, diagnose, predict and plot the wine data."""

from __future__ import annotations

import argparse

from bmsvm.demo import run_demo


def run(options: argparse.Namespace) -> None:
    """Run the demonstration."""
    run_demo(options.output)
