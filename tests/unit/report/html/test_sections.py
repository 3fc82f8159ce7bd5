"""What the page says, as plain values for its template."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import empty, finding, healthy, ordinary, report, tuned

from flatout.report.html.sections import NUM_STEPS, sections
from flatout.report.written_changes import NO_CHANGES, ReportedChange, ReportedChanges
from flatout.schema.run import Environment, Frame, Header


def of(shown, **named):
    return sections(shown, **{"preview": (), "handover": None, "price_h": 0.0, "changes": NO_CHANGES, **named})


def test_an_ordinary_report():
    page = of(ordinary())
    assert page["verdict"].startswith("Training waits: 62% of each step")
    assert not page["good"]
    assert page["subtitle"] == "61 steps recorded, torch 2.13.0"
    assert [name for name, _, _ in page["figures"]] == ["a step", "samples/s", "95% of steps below", "to gain"]
    assert [one["name"] for one in page["findings"]] == ["slow-sample-line", "loader-starved"]  # a doubt is no cause
    assert len(page["notes"]) == 1
    assert page["confirmation"] is None


def test_a_report_of_no_step_has_no_figures():
    page = of(empty())
    assert (page["figures"], page["phases"], page["steps"], page["good"]) == ([], [], [], False)


def test_a_healthy_report_is_good():
    assert of(healthy())["good"]


def test_the_widest_bar_is_that_of_the_largest_phase():
    phases = of(ordinary())["phases"]
    assert (phases[0]["name"], phases[0]["width"]) == ("input", "100.00%")
    assert phases[1]["width"] == f"{100 * 20 / 62:.2f}%"


def test_some_steps_from_the_middle_are_drawn_each_as_parts_of_the_longest():
    steps = of(ordinary())["steps"]
    assert len(steps) == NUM_STEPS
    assert steps[0]["number"] == 1 + (60 - NUM_STEPS) // 2
    assert [part[0] for part in steps[0]["parts"]] == ["input", "forward", "backward", "optimizer", "host"]
    assert not any(step["slow"] for step in steps)


def test_a_step_that_takes_half_more_than_the_others_is_slow():
    shown = ordinary()
    steps = list(shown.run.steps)
    steps[31] = steps[31]._replace(phases_ns=tuple(2 * part for part in steps[31].phases_ns))
    drawn = of(replace(shown, run=replace(shown.run, steps=tuple(steps))))["steps"]
    assert [step["number"] for step in drawn if step["slow"]] == [31]
    assert drawn[0]["parts"][0][1] == "31.00%"


@pytest.mark.parametrize(("each", "said"), [(1, ""), (8, ", each the mean of 8 steps")])
def test_means_are_said_to_be_such(each, said):
    shown = ordinary()
    page = of(replace(shown, run=replace(shown.run, steps_each=each)))
    assert page["each"] == said
    assert page["steps"][0]["number"] == 25 * each


def test_a_finding_shows_lines_around_its_place_and_the_change_that_cures_it(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("".join(f"line {number}\n" for number in range(1, 10)))
    one = finding(location=Frame(str(path), 5, ""))
    diff = ("--- a/train.py", "+++ b/train.py", "@@ -1 +1 @@", "-old", "+new", " same", "--- not a header")
    changes = ReportedChanges(findings={one: ReportedChange("make it faster", diff)})
    page = of(report(one), changes=changes, preview={"IN003"})
    (shown,) = page["findings"]
    assert [number for number, _, _ in shown["lines"]] == [2, 3, 4, 5, 6, 7, 8]
    assert [text for _, text, marked in shown["lines"] if marked] == ["line 5"]
    assert shown["place"] == f"{path}:5"
    assert shown["preview"]
    kinds = [kind for kind, _ in shown["change"]["lines"]]
    assert kinds == ["quiet", "quiet", "quiet", "removed", "added", "", "removed"]


def test_a_tuned_report_shows_the_staircase_with_what_was_kept_first():
    page = of(tuned())
    kept = [row["kept"] for row in page["trials"]]
    assert kept == sorted(kept, reverse=True)
    assert any(kept)
    assert page["before"] != ""


def test_the_environment_leaves_out_what_is_not_known_and_masks_secrets():
    shown = ordinary()
    header = Header(script="train.py", argv=("train.py", "--api-key=abcdefgh12345678"))
    bare = replace(shown, run=replace(shown.run, environment=Environment(python="3.11.7"), header=header))
    rows = dict(of(bare)["environment"])
    assert rows["Python"] == "3.11.7"
    assert "memory" not in rows
    assert "abcdefgh" not in rows["arguments"]
    assert dict(of(shown)["environment"])["OMP_NUM_THREADS"] == "2"
