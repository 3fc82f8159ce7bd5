"""A compiled loader gives what the plain one gives, whatever a script does to data set, loader or batches."""

import numpy as np
import pytest
import torch
from benchmarks import changes
from forks import Run
from recording import digest
from script_list import SCRIPTS, Script
from verdicts import DIFFERS, LOUD, SAME, UNSURE, verdict, verdicts

GIVEN = [script for script in changes.written() if script.kind == "given"]
COMPOSED = changes.composed(11, 9)


def examined(script):
    (found,) = verdicts([script], jobs=1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("script", GIVEN, ids=lambda script: script.name)
@pytest.mark.few(3)
def test_what_was_found_to_pass_unseen_comes_out_as_with_the_plain_loader(script):
    found = examined(script)
    assert found.verdict == SAME, "\n".join([found.line(), *found.details()])


@pytest.mark.slow
@pytest.mark.parametrize("script", COMPOSED, ids=lambda script: script.name)
@pytest.mark.few(5)
def test_composed_scripts_come_out_as_with_the_plain_loader(script):
    found = examined(script)
    assert found.verdict == SAME, "\n".join([script.source, found.line(), *found.details()])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["still_archive", "still_archive_with_workers", "still_large_list_of_dicts"])
def test_batches_of_what_does_not_change_come_from_memory(name):
    found = examined(SCRIPTS[name])
    assert (found.verdict, found.served) == (SAME, True), found.line()


def test_the_22_kinds_that_were_given_and_120_further_ones_are_among_the_scripts():
    composed = changes.composed(0, 180)
    assert len(GIVEN) >= 22
    assert sum(script.changes for script in [*SCRIPTS.values(), *composed]) >= 22 + 120
    assert sum(not script.changes for script in [*SCRIPTS.values(), *composed]) >= 40


def test_another_seed_composes_other_scripts_and_the_same_seed_the_same():
    first, again, other = ([script.source for script in changes.composed(seed, 12)] for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)


def test_every_composed_script_is_python_with_a_function_main():
    for script in changes.composed(5, 120):
        assert "\ndef main(wrap, rec):\n" in script.source
        compile(script.source, script.name, "exec")


def test_a_digest_tells_strides_types_and_shared_memory_apart():
    table = torch.arange(12.0).reshape(3, 4)
    copies = [table, table.clone(), table.t().contiguous().t(), table.double(), table.numpy()]
    assert len({digest(copy) for copy in copies}) == len(copies) - 1
    assert digest([table, table]) != digest([table, table.clone()])
    assert digest([table, table[1:]]) != digest([table, table[1:].clone()])
    assert digest([table.numpy(), table.numpy()[:, 1]]) != digest([table.numpy(), np.array(table.numpy()[:, 1])])


def verdict_of(compiled):
    plain = Run(records=["a", "b"])
    script = Script("one", "given", lambda wrap, rec: None, attributes=("labels",))
    return verdict(script, plain, Run(records=["a", "b"]), compiled).verdict


@pytest.mark.parametrize(
    ("compiled", "expected"),
    [
        (Run(records=["a", "b"]), SAME),
        (Run(records=["a", "c"]), DIFFERS),
        (Run(records=["a"], raised=("builtins", "KeyError", "batches 3 to 5: labels")), DIFFERS),
        (Run(records=["a"], raised=("flatout.errors", "Stale", "batches 3 to 5: labels changed")), LOUD),
        (Run(records=["a"], raised=("flatout.errors", "Stale", "something changed")), DIFFERS),
    ],
)
def test_only_an_error_of_flatouts_that_names_batches_and_attribute_is_loud(compiled, expected):
    assert verdict_of(compiled) == expected


def test_a_script_that_is_not_the_same_twice_says_nothing_about_the_compiled_loader():
    script = Script("one", "given", lambda wrap, rec: None)
    assert verdict(script, Run(records=["a"]), Run(records=["b"]), Run(records=["a"])).verdict == UNSURE
