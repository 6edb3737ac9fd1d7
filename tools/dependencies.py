"""What the package stands on: versions pinned for CI, and the licence of each.

``python tools/dependencies.py lock`` writes constraints.txt from the environment that runs it,
``licences`` writes docs/licences.md, and ``check`` fails on a licence that does not suit ours.
Everything is read from the metadata of installed packages; nothing is fetched.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "bmsvm"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKED = ("test", "lint", "plots", "notebooks")
"""Extras that CI installs."""

# Words of licences under which Apache-2.0 code may use a dependency, as metadata have them.
PERMISSIVE = (
    r"Apache|\bMIT\b|BSD|\bISC\b|\bPSF|Python Software Foundation|Python-2\.0|HPND|CNRI|"
    r"Unlicense|Zlib|Public Domain|CC0|matplotlib|Historical Permission"
)
# Of files, not of what uses them: a dependency that is not copied may have these.
OF_FILES = r"MPL|Mozilla Public"
# Read by hand where metadata say nothing or too much.
KNOWN = {
    "codespell": "GPL-2.0, development only: a program that lint runs",
    "docutils": "Public Domain, BSD-2-Clause, GPL for one Emacs mode that is not imported",
    "matplotlib": "PSF-based (matplotlib)",
    "qpsolvers": "LGPL-3.0, development only: a rival that a benchmark calls",
}


def licence_of(name: str) -> str:
    """Licence of an installed package in one line."""
    if name in KNOWN:
        return KNOWN[name]
    about = metadata.metadata(name)
    expression = about.get("License-Expression")
    if expression:
        return expression
    classifiers = [
        line.rsplit(" :: ", 1)[-1]
        for line in about.get_all("Classifier") or ()
        if line.startswith("License :: ") and not line.endswith("OSI Approved")
    ]
    text = (about.get("License") or "").strip().splitlines()
    return ", ".join(classifiers) or (text[0].strip() if text else "") or "not stated"


def suits(licence: str, *, runtime: bool) -> bool:
    """Whether a dependency with this licence may be used, and by users too."""
    if re.search(PERMISSIVE, licence, re.IGNORECASE):
        return True
    return bool(re.search(OF_FILES, licence, re.IGNORECASE)) or (
        not runtime and "development only" in licence
    )


def requirements(name: str, extra: str) -> list[Requirement]:
    """Return what a package needs for one extra, or for itself where that is empty."""
    if name == PACKAGE:  # as this checkout says, whatever is installed
        lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    else:
        lines = metadata.distribution(name).requires or []
    needed = map(Requirement, lines)
    return [
        each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})
    ]


def closure(extras: Iterable[str]) -> dict[str, str]:
    """Installed packages that the package needs with some extras, and their versions."""
    found: dict[str, str] = {}
    asked: set[tuple[str, str]] = set()
    left = [(PACKAGE, extra) for extra in ("", *extras)]
    while left:
        name, extra = left.pop()
        if (name, extra) in asked:
            continue
        asked.add((name, extra))
        try:
            if name != PACKAGE:
                found[name] = metadata.version(name)
            needed = requirements(name, extra)
        except metadata.PackageNotFoundError:
            print(f"{name} is needed and not installed: left out", file=sys.stderr)
            continue
        for each in needed:
            left += [(canonicalize_name(each.name), part) for part in ("", *each.extras)]
    return dict(sorted(found.items()))


def lock() -> str:
    """Text of constraints.txt; on other versions of Python it says nothing."""
    python = ".".join(map(str, sys.version_info[:2]))
    head = [
        "# Versions that CI installs, made by: python tools/dependencies.py lock",
        "# To install the same: pip install -c constraints.txt -e '.[test]'",
    ]
    marker = f'; python_version == "{python}"'
    pins = [f"{name}=={version} {marker}" for name, version in closure(LOCKED).items()]
    return "\n".join([*head, *pins]) + "\n"


def licences() -> tuple[str, list[str]]:
    """Text of docs/licences.md, and the packages whose licence does not suit."""
    runtime = closure(())
    lines = [
        "# Licences of what bmsvm uses",
        "",
        "bmsvm is under the Apache License 2.0, and contains no code of the packages below: they",
        "are installed beside it. What users need is under permissive licences, or, under the",
        "Mozilla Public License, binds its own files only; what only development needs says so.",
        "`python tools/dependencies.py licences` makes this page from the metadata of an",
        "environment with all extras; `check` fails on any other licence.",
        "",
        "| package | licence | needed |",
        "|---|---|---|",
    ]
    bad = []
    for name in closure(PROJECT["optional-dependencies"]):
        licence = licence_of(name)
        if not suits(licence, runtime=name in runtime):
            bad.append(f"{name}: {licence}")
        needed = "always" if name in runtime else "by an extra"
        lines.append(f"| {name} | {licence.replace('|', '/')} | {needed} |")
    return "\n".join(lines) + "\n", bad


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("lock", "licences", "check"))
    what = parser.parse_args().what
    if what == "lock":
        (ROOT / "constraints.txt").write_text(lock(), encoding="utf-8")
        return 0
    text, bad = licences()
    if what == "licences":
        (ROOT / "docs" / "licences.md").write_text(text, encoding="utf-8")
    for line in bad:
        print(f"licence does not suit: {line}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
