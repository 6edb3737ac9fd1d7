"""``bmsvm summary``: describe a saved model."""

from __future__ import annotations

import argparse

from bmsvm.commands.files import model_of
from bmsvm.summary import summarise_model


def run(options: argparse.Namespace) -> None:
    """Print the facts of a model, its convergence, and the sizes of its classes."""
    model = model_of(options.model)
    summary = summarise_model(model)
    facts = {**summary.facts, "Convergence": summary.verdict}
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        facts["Features"] = ", ".join(map(str, names))
    for name, value in facts.items():
        print(f"{name + ':':16}{' '.join(value.split())}")
    print("Training rows:")
    for name, count in summary.classes:
        print(f"  {count:>8}  {' '.join(str(name).split())}")
