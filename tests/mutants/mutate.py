"""Put a mutant into the text of its module: find the function, then the expression in it."""

import ast
import textwrap
from pathlib import Path

from mutants.catalogue import Mutant

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class MissingTargetError(Exception):
    """The code that a mutant changes is not there, or not once."""


def module_path(root: Path, mutant: Mutant) -> Path:
    """File of a mutant's module under ``root``, the directory that holds the package."""
    module, _, _ = mutant.function.partition(":")
    return root.joinpath(*module.split(".")).with_suffix(".py")


def mutated(text: str, mutant: Mutant) -> str:
    """Text of a module with the mutant in it.

    Code is compared as syntax trees, so that line breaks, spaces and comments do not matter.
    """
    _, _, name = mutant.function.partition(":")
    places = _find(_function(ast.parse(text), name, mutant), mutant)
    if len(places) != mutant.occurrences:
        raise MissingTargetError(
            f"{mutant.name!r}: {mutant.function} has {len(places)} times {mutant.right!r}, and not "
            f"{mutant.occurrences}"
        )
    first, last = places[0]
    wrong = textwrap.dedent(mutant.wrong).strip()
    if isinstance(first, ast.expr):
        wrong = f"({wrong})"
    else:
        wrong = textwrap.indent(wrong, " " * first.col_offset).lstrip()
    lines = text.splitlines(keepends=True)
    start = _offset(lines, first.lineno, first.col_offset)
    end = _offset(lines, last.end_lineno, last.end_col_offset)
    return text[:start] + wrong + text[end:]


def _offset(lines: list[str], line: int, column: int) -> int:
    """Index into the text of a line, counted from 1, and a column, counted in bytes."""
    before = lines[line - 1].encode()[:column].decode()
    return sum(map(len, lines[: line - 1])) + len(before)


def _function(tree: ast.AST, name: str, mutant: Mutant) -> ast.AST:
    """Function or method of a qualified name, nested ones included: ``outer.inner``."""
    for part in name.split("."):
        found = [node for node in _own_functions(tree) if node.name == part]
        if len(found) != 1:
            raise MissingTargetError(
                f"{mutant.name!r}: {mutant.function} has {len(found)} times {part!r}"
            )
        (tree,) = found
    return tree


def _own_functions(tree: ast.AST) -> list:
    """Functions and classes defined directly in a node, not in a function inside it."""
    found = []
    for child in ast.iter_child_nodes(tree):
        found += [child] if isinstance(child, FUNCTIONS) else _own_functions(child)
    return found


def _find(function: ast.AST, mutant: Mutant) -> list[tuple]:
    """First and last node of each place in a function that has the mutant's right code."""
    wanted = ast.parse(textwrap.dedent(mutant.right).strip()).body
    if len(wanted) == 1 and isinstance(wanted[0], ast.Expr):
        target = ast.dump(wanted[0].value)
        found = [
            (node, node)
            for node in ast.walk(function)
            if isinstance(node, ast.expr) and ast.dump(node) == target
        ]
    else:
        target, size = [ast.dump(node) for node in wanted], len(wanted)
        found = [
            (body[start], body[start + size - 1])
            for body in _bodies(function)
            for start in range(len(body) - size + 1)
            if [ast.dump(node) for node in body[start : start + size]] == target
        ]
    return sorted(found, key=lambda place: (place[0].lineno, place[0].col_offset))


def _bodies(function: ast.AST) -> list[list]:
    """Lists of statements in a function."""
    parts = ("body", "orelse", "finalbody")
    return [
        value
        for node in ast.walk(function)
        for value in (getattr(node, part, None) for part in parts)
        if isinstance(value, list)
    ]
