"""Imports point one way: the layers of CONTRIBUTING.md, read off the source."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TypeGuard

import pytest

import bmsvm

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "bmsvm"


def layers() -> list[list[str]]:
    """Layers of CONTRIBUTING.md, top first: the lines of its block that begins with ``cli``."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"```text\n(cli\b.*?)```", text, re.DOTALL)
    return [line.split("  ")[0].split() for line in block.strip().splitlines()]


def modules() -> dict[str, Path]:
    """Modules of the package by dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(name: str, path: Path, known: set[str]) -> set[tuple[str, bool]]:
    """Modules of the package that a module imports, and whether it does so inside a function."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    found = set()
    for node in ast.walk(tree):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [each if each in known else str(node.module) for each in full]
        found |= {(each, id(node) in inside) for each in targets if each in known and each != name}
    return found


KNOWN = modules()
ARROWS = {name: imports(name, path, set(KNOWN)) for name, path in KNOWN.items()}


def room(name: str) -> str:
    """First part of a module's name below the package: ``inference`` of a module in there."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "bmsvm"


def test_every_module_has_a_layer():
    listed = {name for layer in layers() for name in layer}
    rooms = {room(name) for name in KNOWN} - {"bmsvm", "_version", "__main__"}
    assert rooms == listed


def test_imports_point_down():
    height = {each: i for i, layer in enumerate(layers()) for each in layer}
    upward = [
        f"{name} imports {target}"
        for name, found in ARROWS.items()
        for target, _ in found
        if room(name) not in ("bmsvm", "__main__", room(target))
        and room(target) != "_version"
        and height.get(room(target), -1) <= height[room(name)]
    ]
    assert not upward


def test_no_import_hides_in_a_function():
    late = {(name, target) for name, found in ARROWS.items() for target, inside in found if inside}
    assert not late


def test_only_the_package_and_the_command_line_import_by_name():
    """So that ``import bmsvm`` and ``bmsvm --help`` are quick; nothing else needs it."""
    found = {
        name
        for name, path in KNOWN.items()
        if re.search(r"import_module|__import__|\brunpy\b|\bexec\(", path.read_text())
    }
    assert found == {"bmsvm", "bmsvm.cli"}


def test_the_package_names_what_it_imports_late():
    """Type checkers read one list of public names, Python another; they are the same."""
    (block,) = [each for each in ast.parse(KNOWN["bmsvm"].read_text()).body if is_typing(each)]
    said = {
        str(node.module).removeprefix("bmsvm."): tuple(alias.name for alias in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    assert said == bmsvm._HOMES
    late = {name for names in said.values() for name in names}
    assert sorted([*late, "__version__"]) == sorted(bmsvm.__all__)
    assert set(bmsvm._MODULES) <= {room(name) for name in KNOWN}
    for name in (*bmsvm.__all__, *bmsvm._MODULES):
        assert name in dir(bmsvm)
        assert getattr(bmsvm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Classifier'"):
        _ = bmsvm.Classifier


def is_typing(node: ast.stmt) -> TypeGuard[ast.If]:
    """Whether a statement is ``if TYPE_CHECKING``."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


@pytest.mark.parametrize("does", ["", "bmsvm.cli._parser().format_help()"], ids=["import", "help"])
def test_importing_the_package_is_light(does):
    """``import bmsvm`` and ``bmsvm --help`` bring neither JAX nor any other library with them."""
    heavy = "{'arviz', 'jax', 'numpy', 'numpyro', 'scipy', 'sklearn', 'xarray'}"
    script = f"import bmsvm.cli, sys; {does}\nprint(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_walk_names_at_most_fifteen_files_of_the_package():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    walk = text.split("## From `fit` to one sweep and back")[1].split("| concept |")[0]
    named = re.findall(r"`([\w/]+\.py)`", walk)
    assert len(set(named)) == len(named) <= 15
    assert all((PACKAGE / name).is_file() for name in named)


def test_there_is_no_cycle():
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in finished:
            for target, _ in ARROWS[name]:
                visit(target, (*path, name))
            finished.add(name)

    for name in KNOWN:
        visit(name, ())


def test_no_block_imports_another_block():
    blocks = "bmsvm.inference.blocks"
    for name, found in ARROWS.items():
        if name.startswith(f"{blocks}.") and name != f"{blocks}.base":
            others = {target for target, _ in found if target.startswith(blocks)}
            assert others <= {f"{blocks}.base"}, name


def test_a_model_knows_neither_inference_nor_scikit_learn():
    for name, path in KNOWN.items():
        if room(name) == "models":
            text = path.read_text()
            assert "numpyro.infer" not in text.replace("``numpyro.infer", ""), name
            assert "import sklearn" not in text, name
            assert "from sklearn" not in text, name
