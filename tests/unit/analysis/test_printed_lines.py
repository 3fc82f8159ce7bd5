"""What a script prints tells a changed metric, and no clock: lines of three untouched executions and a candidate."""

import pytest

from flatout.analysis.equality import judge
from flatout.analysis.printed_lines import printed_check, saved_check
from flatout.analysis.traces import Interval, Trace
from flatout.schema.trial import Equivalence


def steps(*printed):
    """Return a step for each list of lines, and one more."""
    return tuple(Interval(step=step, printed=tuple(lines)) for step, lines in enumerate([*printed, ()]))


def checked(candidate, *untouched):
    """Compare lines of three steps; one untouched execution stands for all where no more are given."""
    executions = untouched if len(untouched) > 1 else untouched * 3
    return printed_check([steps(*lines) for lines in executions], steps(*candidate))


EPOCHS = [["epoch 0 loss 0.6931 acc 0.50"], ["epoch 1 loss 0.5120 acc 0.75"], ["epoch 2 loss 4.1e-02 acc 1.00"]]


def test_the_same_numbers_pass():
    check = checked(EPOCHS, EPOCHS)
    assert check.passed
    assert check.detail == "3 lines"


def test_another_number_is_named_with_its_line_and_step():
    other = [EPOCHS[0], ["epoch 1 loss 0.5120 acc 0.74"], EPOCHS[2]]
    check = checked(other, EPOCHS)
    assert not check.passed
    assert check.step == 1
    assert "`epoch 1 loss 0.5120 acc 0.74` is printed, not `epoch 1 loss 0.5120 acc 0.75`" in check.detail


@pytest.mark.parametrize(
    "line",
    ["acc nan", "acc=-0.5", "  mIoU: .25,", "scores [0.5, 0.25]", "{'f1': 1e-05}", "perplexity 1_000.5"],
)
def test_numbers_are_found_as_people_print_them(line):
    other = line.replace("nan", "inf").replace("5", "6")
    assert checked([[line]], [[line]]).passed
    assert not checked([[other]], [[line]]).passed


@pytest.mark.parametrize(
    ("other", "same"),
    [("acc 0.51 of 24", True), ("acc 0.5 of 26", True), ("acc 0.6 of 24", False), ("acc 0.5 of 30", False)],
)
def test_other_rounding_moves_a_number_a_little(other, same):
    lines = [steps(["acc 0.5 of 24"])] * 3
    assert printed_check(lines, steps([other]), rounded=True).passed is same
    assert not printed_check(lines, steps([other])).passed


def test_a_line_may_hold_any_characters():
    assert checked([["#3 of #9: 0.5 #"]], [["#3 of #9: 0.5 #"]]).detail == "1 lines"


def test_lines_may_be_left_out_or_come_later():
    assert checked([[], EPOCHS[1], EPOCHS[2]], EPOCHS).passed
    assert checked([[], [*EPOCHS[0], *EPOCHS[1]], EPOCHS[2]], EPOCHS).passed
    assert not checked([EPOCHS[1], EPOCHS[0], []], EPOCHS).passed  # in another order


def test_numbers_that_the_untouched_script_prints_otherwise_each_time_say_nothing():
    def one(number):
        return [[f"loss 0.5 after {number}"]]

    assert checked(one(9), one(1), one(1), one(2)).passed
    assert not checked(one(9), one(1), one(1), one(1)).passed
    assert not checked([["loss 0.6 after 9"]], one(1), one(1), one(2)).passed


@pytest.mark.parametrize(
    "text",
    [
        "epoch time: #",
        "took # seconds",
        "# s",
        "#ms/step",
        "speed # img/s",
        "ETA #",
        "2026-11-30 08:41:0#,123 INFO start",
        "0:00:1#",
        "peak # MiB",
        "tensor at 0x7f3a#",
        "num_workers=#",
        "finished in #",
    ],
)
def test_time_and_memory_say_nothing(text):
    assert checked([[text.replace("#", "4")]], [[text.replace("#", "7")]]).passed


@pytest.mark.parametrize(
    "text",
    [
        "Prec@1:#7.50",
        "dice2:#5.25 dice3:90.00",
        "bucket 4:#2.5",
        "multimedia rank #",
        "consentiment score #",
        "invalidated rows: #",
        "reg/smoothness #",
        "style # test/seq_acc 2.5",
        "embed # min 2 max 9",
        "# tokens per sentence",
        "remembered # of 20 members",
        "second pass: #",
        "timesteps seen #",
    ],
)
def test_words_and_signs_that_only_look_like_time_hide_no_number(text):
    assert not checked([[text.replace("#", "1")]], [[text.replace("#", "4")]]).passed


@pytest.mark.parametrize(
    "text",
    [
        "steps_per_second #",
        "{'eval_runtime': #, 'x': 1}",
        "0.4 s/it, # it/s",
        "batch time 0.2 (#)",
        "us per step: #",
        "2026-11-30T08:41:0#.5+01:00 epoch",
        "/home/a/run.py:12#: UserWarning: lr 0.5",
        'File "run.py", line 12#, in fit',
        "1.2k tok/s and #k tok/sec",
        "took # min",
    ],
)
def test_more_that_speaks_of_time_and_places_in_code(text):
    assert checked([[text.replace("#", "4")]], [[text.replace("#", "7")]]).passed


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("val 0.25", "val NaN"),
        ("val 0.25", "val None"),
        ("stopped: False", "stopped: True"),
        ("{'best': None, 'f1': 0.5}", "{'best': 0.7, 'f1': 0.5}"),
        ("step 12: kept 0.5", "step 12: thrown away 0.5"),
    ],
)
def test_words_in_the_place_of_values_are_compared(line, other):
    assert checked([[line]], [[line]]).passed
    assert not checked([[other]], [[line]]).passed


def test_other_words_say_nothing_where_the_usual_line_is_there_or_words_depend_on_time_or_rounding():
    usual = [["step 3: kept 0.5"]]
    assert checked([[*usual[0], "step 3: warned"]], usual).passed
    assert checked([["step 4: thrown away 0.5"]], usual).passed
    assert checked([["step 3: 45 seconds"]], [["step 3: 2 minutes 5 seconds"]]).passed
    assert checked([["step 3: saved to /tmp/b/3.pt"]], [["step 3: saved to /tmp/a/3.pt"]]).passed
    assert checked([["step 3: thrown 0.5"]], usual, [["step 3: lost 0.5"]], usual).passed
    lines = [steps(["step 3: kept True 0.5"])] * 3
    assert printed_check(lines, steps(["step 3: kept False 0.5"]), rounded=True).passed
    assert printed_check(lines, steps(["step 3: thrown away 0.5"]), rounded=True).passed
    assert not printed_check(lines, steps(["step 3: kept None 0.5"]), rounded=True).passed


@pytest.mark.parametrize(
    "text", ["    fused: #", "    foreach: #", "cudnn.benchmark = #", "{'allow_tf32': #}", "compile=#"]
)
def test_settings_that_a_fix_may_change_say_nothing(text):
    assert checked([[text.replace("#", "True")]], [[text.replace("#", "None")]]).passed
    assert not checked([[text.replace("#", "0.25")]], [[text.replace("#", "0.75")]]).passed
    assert not checked([["amsgrad: True"]], [["amsgrad: False"]]).passed


def test_a_number_after_a_time_is_compared():
    line = "time 3.2 loss {}"
    assert not checked([[line.format(0.5)]], [[line.format(0.25)]]).passed


def test_executions_that_print_another_number_of_lines_say_nothing():
    assert checked([["x 9"]], [["x 1", "x 2", "x 3"]], [["x 1"]]).passed


def test_what_was_printed_in_the_last_step_may_have_come_later():
    untouched = [Interval(step=0), Interval(step=1)]
    candidate = [Interval(step=0), Interval(step=1, printed=("acc 0.5",))]
    assert printed_check([untouched] * 3, candidate).passed


def saving(*states):
    return (*(Interval(step=step, saved=saved) for step, saved in enumerate(states)), Interval(step=len(states)))


def test_saved_states_are_those_of_the_untouched_script():
    usual = saving(("a",), (), ("b",), ("c",))
    assert saved_check([usual] * 3, usual).detail == "3 saves"
    assert saved_check([usual] * 3, saving((), (), ("b",), ("c",))).passed  # one was left out
    other = saved_check([usual] * 3, saving(("a",), (), ("x",), ("c",)))
    assert not other.passed
    assert (other.step, other.detail) == (2, "save 2 writes another state than it did")
    assert not saved_check([usual] * 3, saving(("b",), ("a",), (), ())).passed


def test_states_that_are_others_each_time_say_nothing():
    usual, again = saving(("a",), ("b",)), saving(("a",), ("z",))
    assert saved_check([usual, again, usual], saving(("q",), ("b",))).passed


def test_a_time_in_a_state_hides_none_of_its_other_parts():
    def usual(clock, weights="w"):
        return saving((f"{weights} {clock} e1",), (f"v {clock}9 e2",))

    untouched = [usual("a"), usual("b"), usual("c")]
    assert saved_check(untouched, usual("q")).detail == "2 saves"
    assert not saved_check(untouched, usual("q", weights="other")).passed
    assert saved_check([usual("a"), usual("a"), saving(("w a",), ("v a9 e2",))], usual("q", weights="other")).passed


def test_a_changed_metric_is_another_result_of_a_training_with_the_same_bits():
    def trace(role, lines):
        intervals = tuple(
            Interval(step=step, losses=((1.0).hex(),), prints="0" * 16, names=("w",), update=1.0, printed=printed)
            for step, printed in enumerate([(lines,), (), (), ()])
        )
        return Trace(role=role, intervals=intervals, complete=True, reason="steps")

    baseline, again, bare = (trace(role, "acc 0.5") for role in ("baseline", "again", "bare"))
    same = judge(Equivalence.BITWISE, baseline, again, None, None, trace("candidate", "acc 0.5"), bare)
    other = judge(Equivalence.BITWISE, baseline, again, None, None, trace("candidate", "acc 0.7"), bare)
    assert same.equal is True
    assert other.equal is False
    assert "acc 0.7" in other.reason
