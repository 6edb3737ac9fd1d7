"""The mutants fit the code, and name tests that exist: make mutants shows that each is noticed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from mutants.catalogue import MUTANTS, Mutant
from mutants.mutate import MissingTargetError, module_path, mutated

import bmsvm

TESTS = Path(__file__).parent
ROOT = Path(bmsvm.__file__).parents[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_its_function(mutant):
    path = module_path(ROOT, mutant)
    text = path.read_text(encoding="utf-8")
    wrong = mutated(text, mutant)
    assert wrong != text
    compile(wrong, path, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_names_tests_that_exist(mutant):
    file, _, expression = mutant.tests.partition(" ")
    tests = re.findall(r"^ *def (test_\w+)", (TESTS / file).read_text(encoding="utf-8"), re.M)
    first = expression.split()[0]
    assert any(first in name for name in tests)


def test_names_of_mutants_differ():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


CODE = """
def outer(x):
    def inner(y):
        first(y)
        second(
            y  # a comment
        )
        return y + 2 * x

    return inner(x) + 2 * x
"""
EXAMPLE = Mutant("example", "some.module:outer.inner", "2 * x", "0.0", "test_mutants.py names")


def test_only_the_named_function_is_changed():
    assert mutated(CODE, EXAMPLE) == CODE.replace("return y + 2 * x", "return y + (0.0)")


def test_line_breaks_and_comments_do_not_matter():
    swapped = replace(EXAMPLE, right="first(y)\nsecond(y)", wrong="second(y)\nfirst(y)")
    expected = "        second(y)\n        first(y)\n        return"
    assert expected in mutated(CODE, swapped)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"right": "3 * x"}, "outer.inner has 0 times '3 . x', and not 1"),
        ({"function": "some.module:outer"}, "outer has 2 times '2 . x', and not 1"),
        ({"function": "some.module:other"}, "has 0 times 'other'"),
    ],
)
def test_a_missing_target_is_an_error(change, message):
    with pytest.raises(MissingTargetError, match=message):
        mutated(CODE, replace(EXAMPLE, **change))
