"""The mutants of the sampler fit the code: make mutants shows that each is noticed."""

from pathlib import Path

import pytest
from mutants.catalogue import MUTANTS

import bmsvm

PACKAGE = Path(bmsvm.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_line_and_names_its_tests(mutant):
    text = (PACKAGE / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.right) == 1
    compile(text.replace(mutant.right, mutant.wrong), mutant.file, "exec")
    file, _, expression = mutant.tests.partition(" ")
    assert (Path(__file__).parent / file).exists()
    assert expression
