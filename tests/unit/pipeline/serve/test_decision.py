"""What is chosen for which facts: the table of the input compiler's decision."""

import ast
import inspect
import itertools
import sys

import pytest

from flatout.pipeline.serve import decision
from flatout.pipeline.serve.decision import CompilerFacts, InputFacts, Reading, Strategy, choose

KERNELS = CompilerFacts(in_memory=False)
IN_MEMORY = CompilerFacts(in_memory=True)


@pytest.mark.parametrize(
    ("facts", "strategy", "reason"),
    [
        (InputFacts(refused="no length"), Strategy.PASSTHROUGH, "no length"),
        (InputFacts(), Strategy.KEPT_ROWS, ""),
        (InputFacts(num_workers=2), Strategy.KEPT_ROWS, ""),
        (InputFacts(compiler=KERNELS), Strategy.BATCH_COMPILED, ""),
        (InputFacts(compiler=IN_MEMORY, random="flips"), Strategy.BATCH_COMPILED, ""),
        (InputFacts(random="flips", rows_refused="flips", num_workers=2), Strategy.PASSTHROUGH, "flips"),
        (InputFacts(random="flips", rows_refused="flips"), Strategy.KEPT_SAMPLES, ""),
        (InputFacts(rows_refused="no rows"), Strategy.KEPT_SAMPLES, ""),
        (InputFacts(collate_once="counts", rows_refused="counts", num_workers=1), Strategy.PASSTHROUGH, "counts"),
        (InputFacts(num_waiting=8), Strategy.KEPT_ROWS, ""),
        (InputFacts(num_waiting=8, rows_fit=False), Strategy.PREFETCHED, ""),
        (InputFacts(num_waiting=8, rows_fit=False, num_workers=2), Strategy.PREFETCHED, ""),
        (InputFacts(rows_fit=False), Strategy.KEPT_ROWS, ""),
    ],
)
def test_what_serves(facts, strategy, reason):
    chosen = choose(facts)
    assert (chosen.strategy, chosen.reason) == (strategy, reason)


@pytest.mark.parametrize(
    ("facts", "otherwise"),
    [
        (InputFacts(random="flips", rows_refused="flips"), Strategy.PASSTHROUGH),
        (InputFacts(rows_refused="no rows"), Strategy.KEPT_ROWS),
        (InputFacts(collate_once="counts", rows_refused="counts"), Strategy.PASSTHROUGH),
        (InputFacts(collate_once="counts", rows_refused="counts", num_waiting=8), Strategy.PREFETCHED),
    ],
)
def test_where_keeping_samples_does_not_pay(facts, otherwise):
    assert choose(facts).strategy is Strategy.KEPT_SAMPLES
    assert choose(facts).otherwise.strategy is otherwise


@pytest.mark.parametrize(
    ("compiler", "num_workers", "reading"),
    [
        (KERNELS, 0, Reading()),
        (CompilerFacts(False, reading_threads=4), 0, Reading(threads=4)),
        (CompilerFacts(False, workers_read=True, reading_threads=4), 2, Reading(workers=True)),
        (CompilerFacts(False, reads_quickly=True, workers_read=True), 2, Reading()),
        (CompilerFacts(False, one_by_one=True, reading_threads=4), 0, Reading()),
        (CompilerFacts(True, reading_threads=4), 2, Reading()),
    ],
)
def test_who_reads_for_the_kernels(compiler, num_workers, reading):
    chosen = choose(InputFacts(compiler=compiler, num_workers=num_workers))
    assert (chosen.strategy, chosen.reading) == (Strategy.BATCH_COMPILED, reading)


@pytest.mark.parametrize("workers_begin", [False, True])
def test_workers_go_on_where_kernels_would_read_no_quicker_or_draw_otherwise(workers_begin):
    slow = InputFacts(compiler=KERNELS, num_workers=2, workers_begin=workers_begin)
    assert choose(slow).strategy is Strategy.KEPT_ROWS
    drawn = CompilerFacts(False, random=True, reads_quickly=True)
    facts = InputFacts(random="flips", rows_refused="flips", compiler=drawn, num_workers=2, workers_begin=workers_begin)
    assert choose(facts).strategy is (Strategy.PASSTHROUGH if workers_begin else Strategy.BATCH_COMPILED)


def test_every_decision_says_why_or_serves():
    compilers = [None, KERNELS, IN_MEMORY, CompilerFacts(False, random=True, workers_read=True)]
    words, numbers = ["", "why"], [0, 2]
    for refused, random, workers, compiler, waiting, once, fit in itertools.product(
        words, words, numbers, compilers, numbers, words, [False, True]
    ):
        facts = InputFacts(
            refused=refused,
            random=random,
            num_workers=workers,
            compiler=compiler,
            num_waiting=0 if random else waiting,
            collate_once=once,
            rows_refused=random or once,
            rows_fit=fit,
        )
        chosen = choose(facts)
        assert bool(chosen.reason) == (chosen.strategy is Strategy.PASSTHROUGH)
        assert bool(chosen.otherwise) == (chosen.strategy is Strategy.KEPT_SAMPLES)
        assert not (once and chosen.strategy is Strategy.KEPT_ROWS)


def test_the_decision_needs_nothing_but_its_facts():
    imported = [each for each in ast.walk(ast.parse(inspect.getsource(decision))) if isinstance(each, ast.ImportFrom)]
    assert {each.module.partition(".")[0] for each in imported} <= sys.stdlib_module_names
