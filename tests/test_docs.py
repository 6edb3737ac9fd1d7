"""Pages of the repository: links that lead somewhere, pictures and lists that are up to date."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bmsvm

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
PAGES = [page for page in PAGES if "_build" not in page.parts]


def anchors(text):
    """Return the places that headings make, as GitHub and MyST name them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, place = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} in {page.name}"
        if place:
            assert place in anchors(found.read_text(encoding="utf-8")), f"{target} in {page.name}"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plate_diagram_is_what_its_script_draws():
    plate = load(ROOT / "docs" / "plate.py")
    assert plate.TARGET.read_text(encoding="utf-8") == plate.svg()


def test_the_link_checker_sees_what_is_broken(tmp_path):
    broken_links = load(ROOT / "docs" / "check_links.py").broken_links
    assert broken_links(tmp_path) == [f"{tmp_path}: no pages"]
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="b.html#there">x</a><a href="#here">y</a>'
    )
    assert broken_links(tmp_path) == ["a.html: b.html#there does not exist"]
    (tmp_path / "b.html").write_text('<a href="https://example.org">z</a>')
    assert broken_links(tmp_path) == ["a.html: b.html#there: no such place in the page"]
    (tmp_path / "b.html").write_text(
        '<p id="there"><script src="https://example.org/x.js"></script>'
    )
    assert broken_links(tmp_path) == ["b.html: https://example.org/x.js is loaded from elsewhere"]
    (tmp_path / "b.html").write_text('<p id="there">')
    assert broken_links(tmp_path) == []


def test_every_public_name_is_in_the_reference():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    for name in bmsvm.__all__:
        assert f"bmsvm.{name}" in pages, name


def test_the_documentation_can_be_built_from_its_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = " ".join(extras["optional-dependencies"]["docs"])
    for package in ("sphinx", "myst-nb", "myst-parser", "furo", "latex2mathml"):
        assert package in wanted


NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.py"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_say_for_whom_they_are_and_are_listed(notebook):
    text = notebook.read_text(encoding="utf-8")
    opening = "\n".join(text.split("# %% [markdown]\n")[:3])  # the first may be about a picture
    assert "**For whom:**" in opening
    assert "**What you will see:**" in opening
    assert f"(../notebooks/{notebook.stem}.ipynb)" in (ROOT / "docs" / "notebooks.md").read_text()
    links = re.findall(r"\]\(([^)\s:]+)\)", text)
    assert all((notebook.parent / link).exists() for link in links)


def test_there_are_seven_notebooks():
    assert [path.name[:2] for path in NOTEBOOKS] == [f"0{i}" for i in range(1, 8)]


def test_pages_are_built_without_the_inventories_of_others(tmp_path):
    """Only an inventory that is there is linked to, and it is kept for the next build."""
    found_inventories = load(ROOT / "docs" / "_ext" / "inventories.py").found_inventories
    there, damaged = tmp_path / "there", tmp_path / "damaged"
    for site, content in ((there, b"# Sphinx inventory version 2\n"), (damaged, b"<html>")):
        site.mkdir()
        (site / "objects.inv").write_bytes(content)
    projects = {site.name: f"{site.as_uri()}/" for site in (there, damaged, tmp_path / "nowhere")}
    kept = tmp_path / "kept"
    expected = {"there": (projects["there"], str(kept / "there.inv"))}
    assert found_inventories(projects, kept) == expected
    (there / "objects.inv").unlink()
    assert found_inventories(projects, kept) == expected


def test_titles_are_unique():
    pages = [page for page in PAGES if page.parent != ROOT]
    titles = [re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.M) for page in pages]
    named = [title.group(1) for title in titles if title]
    assert len(set(named)) == len(named), sorted(named)


def test_every_page_is_in_the_index():
    """Sphinx says the same, but needs to be installed for it."""
    listed = "".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("index.md", "api/index.md")
    )
    for page in (ROOT / "docs").rglob("*.md"):
        if "_build" not in page.parts and page.stem != "index":
            assert re.search(rf"^(?:api/)?{page.stem}$", listed, re.M), page.name


def readme_example():
    """Return the first block of Python of the README, and the output printed below it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.S).groups()
    return code, output


def test_the_readme_prints_what_it_says():
    code, output = readme_example()
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == output


def test_there_are_seven_executed_notebooks():
    assert [path.name for path in sorted((ROOT / "notebooks").glob("*.ipynb"))] == [
        f"{path.stem}.ipynb" for path in NOTEBOOKS
    ]


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_source_with_outputs(source):
    cells_of = load(ROOT / "notebooks" / "cells.py").cells_of
    path = source.with_suffix(".ipynb")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    found = [
        (cell["cell_type"], "".join(cell["source"]), *(cell["metadata"].get("tags") or [None]))
        for cell in notebook["cells"]
    ]
    advice = f"make notebooks-build NOTEBOOKS={path.name[:2]}"
    assert found == cells_of(source.read_text(encoding="utf-8")), advice
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), advice
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
    assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_nothing_from_beside_itself(source):
    beside = {path.stem for path in source.parent.iterdir()} | {
        "reproduction",
        "benchmarks",
        "tests",
    }
    code = ast.walk(ast.parse(source.read_text(encoding="utf-8")))
    imported = set()
    for node in code:
        if isinstance(node, ast.Import):
            imported |= {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            imported.add(node.module.split(".")[0])
    assert "bmsvm" in imported
    assert not imported & beside


def test_cells_of_a_source():
    cells_of = load(ROOT / "notebooks" / "cells.py").cells_of
    header = "# ---\n# a: b\n# ---\n\n"
    code = '# %% tags=["hide-input"]\n'
    code += "n, m = 5, 6  # small: 1, 2\n\nf(n)\n"
    text = f"{header}# %% [markdown]\n# # One\n#\n# two\n\n{code}"
    assert cells_of(text) == [
        ("markdown", "# One\n\ntwo", None),
        ("code", "n, m = 5, 6\n\nf(n)", "hide-input"),
    ]
    assert cells_of(text, small=True)[1] == ("code", "n, m = 1, 2\n\nf(n)", "hide-input")


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_are_those_of_jupytext(source):
    jupytext = pytest.importorskip("jupytext")
    cells_of = load(ROOT / "notebooks" / "cells.py").cells_of
    text = re.sub(r"  # small: .*", "", source.read_text(encoding="utf-8"))
    expected = jupytext.reads(text, fmt="py:percent").cells
    assert cells_of(text) == [
        (cell.cell_type, cell.source.strip("\n"), *(cell.metadata.get("tags") or [None]))
        for cell in expected
    ]
