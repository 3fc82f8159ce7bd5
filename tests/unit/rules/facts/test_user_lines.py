"""Which function and line a kind of time goes to."""

import pytest

from flatout.rules import example, line
from flatout.rules.core.sentence import within
from flatout.rules.facts.user_lines import COMPILED, MIN_SAMPLES, costs, hottest, outer_lines, seconds
from flatout.schema.phase import Phase
from flatout.schema.run import Frame

LOOP = ("train.py", 40, "train")


def test_time_is_added_up_by_function_and_the_hottest_line_of_the_hottest_function_is_the_place():
    lines = [
        line(0.6, ("a.py", 1, "f")),
        line(0.5, ("a.py", 10, "g")),
        line(0.3, ("a.py", 12, "g")),
    ]
    spot = hottest(lines, among=lines)
    assert spot.place == Frame("a.py", 10, "g")
    assert spot.share == pytest.approx(0.8 / 1.4)
    assert spot.samples == 80


def test_only_the_innermost_user_frame_counts():
    lines = [line(0.6, ("a.py", 5, "inner"), LOOP), line(0.5, LOOP)]
    assert hottest(lines, among=lines).place.function == "inner"


def test_the_same_line_reached_by_several_ways_is_one_place():
    lines = [line(0.3, ("a.py", 5, "f"), LOOP), line(0.3, ("a.py", 5, "f"), ("b.py", 2, "g")), line(0.5, LOOP)]
    assert hottest(lines, among=lines).place == Frame("a.py", 5, "f")


def test_time_without_a_user_line_counts_in_the_whole_but_is_no_place():
    lines = [line(0.4, LOOP), line(1.6)]
    assert hottest(lines, among=lines).share == pytest.approx(0.2)
    assert hottest([lines[1]], among=lines) is None


def test_fewer_than_eight_samples_name_nothing():
    few, enough = line(3.0, LOOP, samples=MIN_SAMPLES - 1), line(0.1, ("a.py", 1, "f"), samples=MIN_SAMPLES)
    assert hottest([few], among=[few]) is None
    assert hottest([few, enough], among=[few, enough]).place.function == "f"


def test_a_function_seen_on_many_lines_is_named_by_its_first_line_when_its_source_can_be_read(tmp_path):
    source = tmp_path / "slow.py"
    source.write_text("x = 1\n\ndef f():\n" + "    x\n" * 20)
    lines = [line(0.03, (str(source), 4 + i, "f")) for i in range(5)]
    assert hottest(lines, among=lines).place == Frame(str(source), 3, "f")


def test_a_line_with_half_of_few_samples_is_named():
    lines = [line(0.06, ("a.py", 10, "f"), samples=6), line(0.05, ("a.py", 12, "f"), samples=3)]
    assert hottest(lines, among=lines).place == Frame("a.py", 10, "f")


def test_a_few_samples_of_a_long_pause_do_not_name_their_line():
    """The garbage collector ran where the seventh sample was due, for more than the others together."""
    lines = [line(0.7, ("a.py", 36, "f"), samples=7), line(0.5, ("a.py", 34, "f"), samples=190)]
    assert hottest(lines, among=lines).place == Frame("a.py", 34, "f")


def test_functions_of_one_name_in_one_file_are_told_apart(tmp_path):
    source = tmp_path / "transforms.py"
    source.write_text("class A:\n    def f(self):\n        pass\nclass B:\n    def f(self):\n        pass\n")
    lines = [line(0.4, (str(source), 3, "f")), line(0.6, (str(source), 6, "f"))]
    assert hottest(lines, among=lines).share == pytest.approx(0.6)


def test_what_ran_below_a_function_is_named_when_it_is_most_of_it():
    lines = [line(0.9, LOOP, leaf="PIL", leaf_function="resize"), line(0.2, LOOP)]
    assert hottest(lines, among=lines).running == "PIL resize"
    lines = [line(0.3, LOOP, leaf="PIL", leaf_function="resize"), line(0.9, LOOP)]
    assert hottest(lines, among=lines).running == ""


def test_lines_are_chosen_by_phase_process_stage_and_predicate():
    lines = [
        line(1, LOOP, stage="sample"),
        line(2, LOOP, stage="collate"),
        line(4, LOOP, stage="sample", process="worker"),
        line(8, LOOP, phase=Phase.HOST),
    ]
    run = example(lines=lines).run
    assert seconds(costs(run, Phase.INPUT)) == 3
    assert seconds(costs(run, Phase.INPUT, stages=("collate",))) == 2
    assert seconds(costs(run, Phase.INPUT, process="worker")) == 4
    assert seconds(costs(run, Phase.HOST, keep=lambda cost: cost.seconds > 9)) == 0


def test_without_a_deep_run_there_are_no_lines():
    assert costs(example().run, Phase.INPUT) == ()


def test_nothing_is_the_hottest_of_nothing():
    assert hottest([], among=[]) is None


def test_files_that_torch_compile_wrote_are_not_the_users():
    kernel = "/tmp/cache/44/cf4fx57qz4c3gz4krcfzgzqxmk4m4mkwklrwv65hcdnzoys6t2nr.py"
    lines = [line(1.0, (kernel, 1059, "Runner.call"), ("optim.py", 111, "update"), phase=Phase.OPTIMIZER)]
    (cost,) = costs(example(lines=lines).run, Phase.OPTIMIZER)
    assert [frame.file for frame in cost.stack] == ["optim.py"]
    assert (cost.leaf, cost.leaf_function) == ("torch", COMPILED)


def test_the_call_of_a_loop_lies_around_all_parts_of_the_step():
    fit = ("train.py", 90, "main")
    forward = line(5.0, ("model.py", 7, "Net.forward"), fit, phase=Phase.FORWARD)
    update = line(1.0, ("model.py", 9, "Net.optimizer_step"), fit, phase=Phase.OPTIMIZER)
    assert outer_lines(example(lines=[forward, update]).run) == {Frame(*fit)}
    assert outer_lines(example(lines=[forward]).run) == frozenset()
    assert outer_lines(example().run) == frozenset()


SPREAD = """\
def align(a, b):
    best = 0
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            score = x == y
            best = max(best, score)
    return best

def score(rows):
    return [align(a, b)
            for a, b in rows]

def scan(rows):
    for row in rows:
        out = row.sum()
    return out
"""


@pytest.mark.parametrize("shares", [(0.3, 0.4), (0.05, 0.8)])
def test_the_call_is_named_where_no_line_of_a_function_stands_out(tmp_path, shares):
    """Samples of a loop in plain Python gather in the line that it goes back from: that line does not stand out."""
    source = tmp_path / "edits.py"
    source.write_text(SPREAD)
    file = str(source)
    below = [(file, 10, "score"), LOOP]
    seen = [line(share, (file, number, "align"), *below) for share, number in zip(shares, (5, 6), strict=True)]
    seen += [line(0.2, (file, 3, "align"), *below)]
    spot = hottest(seen, among=seen)
    assert (spot.place, spot.inside.function) == (Frame(file, 10, "score"), "align")
    assert within(spot) == "`align`, called from `score` (edits.py:10)"


def test_a_line_that_runs_a_library_stands_out_and_so_does_a_loop_of_one_line(tmp_path):
    source = tmp_path / "edits.py"
    source.write_text(SPREAD)
    file = str(source)
    below = [(file, 10, "score"), LOOP]
    library = [line(0.8, (file, 6, "align"), *below, leaf="numpy"), line(0.2, (file, 5, "align"), *below)]
    assert hottest(library, among=library).place.line == 6
    single = [line(0.9, (file, 15, "scan"), LOOP), line(0.1, (file, 14, "scan"), LOOP)]
    assert hottest(single, among=single).place.line == 15
