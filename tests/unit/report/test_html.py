"""The page for a browser: it holds what the terminal shows, loads nothing, and no name in it can act."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from tests.unit.report.specimens import (
    MS,
    drawn,
    empty,
    finding,
    healthy,
    hostile,
    hostile_tune,
    ordinary,
    report,
    run,
    tuned,
)

from flatout.analysis.breakdown import account
from flatout.report.exports.chrome import chrome_trace
from flatout.report.html.charts import MAX_POINTS, charts
from flatout.report.html.page import page
from flatout.report.tune_summary import HandoverStair
from flatout.report.written_changes import ReportedChange, ReportedChanges
from flatout.schema.report import Report
from flatout.schema.run import DeviceKernel, DeviceWork, Frame, Span, Step, Utilization

INVISIBLE = {"\x1b", "\x07", "\u202e", "\u2066", "\u200b", "\x9b", "\r"}
SCRIPT = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """Reads the elements of a page, the text of those that a person sees, and whatever would be fetched."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.seen, self.fetched, self._inside = [], "", [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.seen += " "
        if tag not in ("meta", "br", "link", "img"):
            self._inside.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag):
        assert self._inside.pop() == tag

    def handle_data(self, data):
        if self._inside and self._inside[-1] not in ("style", "script"):
            self.seen += data

    @property
    def words(self):
        return " ".join(self.seen.split())


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)[1])


EVERY = [ordinary, drawn, healthy, empty, hostile, tuned, hostile_tune]


@pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
def test_a_page_is_well_formed_and_fetches_nothing(make):
    text = page(make())
    read = Reader(text)
    assert not read._inside
    assert not read.fetched
    assert "default-src 'none'" in text
    assert len(text.encode()) < 200_000
    assert read.tags.count("script") == 2
    assert read.tags.count("h1") == 1


def test_it_says_what_the_terminal_says():
    words = Reader(page(ordinary(), preview={"IN001"})).words
    for said in (
        "Training waits: 62% of each step is spent loading data",
        "input 62.0 ms 62%",
        "IN003 slow-sample-line",
        "train.py:48 in ImageDataset.__getitem__",
        "62% of the step, at most 2.6x",
        "IN001 loader-starved (preview)",
        "device-resident 38.0 ms",
        "MS001 noisy-machine: Other processes used 1.2 of 2 cores",
        "validation 2.00 s",
        "OMP_NUM_THREADS 2",
        "flatout explain IN003",
    ):
        assert said in words


def test_a_tune_shows_every_trial_with_its_interval_and_the_command():
    shown = tuned()
    handover = HandoverStair(file="flatout.toml", command=("flatout", "run", "train.py"))
    words = Reader(page(shown, handover=handover)).words
    for trial in shown.trials:
        assert trial.candidate.selection.label in words
    assert "Train under it: flatout run train.py" in words
    assert "as fast under the recipe" in words


def test_a_price_adds_what_an_epoch_costs():
    long = recorded(2500)
    assert "an hour" not in page(long)
    assert re.search(r"An epoch of 1,000 steps takes .* At 3.5 an hour it costs 0\.\d+", page(long, price_h=3.5))
    assert "The cost of an epoch is not known" in page(ordinary(), price_h=3.5)


def test_no_name_of_a_script_can_act():
    text = page(hostile())
    assert not set(text) & INVISIBLE
    bad = finding(
        name=SCRIPT, message=SCRIPT, location=Frame(f"/project/{SCRIPT}.py", 3, SCRIPT), fixes=(SCRIPT,), code=SCRIPT
    )
    shown = report(bad, folder=f"/tmp/{SCRIPT}")
    header = replace(shown.run.header, script=SCRIPT, argv=(SCRIPT, '"onload="x'))
    text = page(replace(shown, run=replace(shown.run, header=header, notes=(SCRIPT,), seams={SCRIPT: 3})))
    read = Reader(text)
    assert read.tags.count("script") == 2
    assert "alert(1)" in read.words


def test_text_in_the_figures_cannot_end_their_element():
    made = charts(ordinary())
    made[0]["x"] = "</script><script>"
    from flatout.report.html.page import _script_json

    told = _script_json(made)
    assert "<" not in told
    assert json.loads(told) == made


def test_the_lines_around_the_one_that_is_named_are_shown(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("".join(f"line_{number} = '<b>'\n" for number in range(1, 21)))
    words = Reader(page(report(finding(location=Frame(str(script), 10, "f"))))).words
    assert "10 line_10 = '<b>'" in words
    assert "7 line_7" in words
    assert "13 line_13" in words
    assert "line_6 " not in words
    assert "line_14" not in words


def test_a_line_that_was_changed_since_is_not_shown(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("changed = 1\n")
    shown = report(finding(location=Frame(str(script), 1, "f")))
    header = replace(shown.run.header, started_unix_s=script.stat().st_mtime - 10)
    assert "changed = 1" not in page(replace(shown, run=replace(shown.run, header=header)))


def recorded(num_steps):
    """Return the Report of a long recording: steps, losses, a minute of utilization."""
    short = run(3, input=3, forward=5, backward=2)
    first = short.steps[-1]
    steps = tuple(
        Step(first.start_ns + number * 10 * MS, first.wall_ns, first.phases_ns, epoch=number // 1000)
        for number in range(num_steps)
    )
    whole = replace(
        short,
        steps=steps,
        losses=tuple(1 / (1 + number) for number in range(num_steps)),
        utilization=tuple(Utilization(at_s=float(at), main_cpu=1.0, memory_bytes=2**30) for at in range(60)),
    )
    return Report(run=whole, breakdown=account(whole))


@pytest.mark.slow
def test_a_hundred_thousand_steps_make_a_small_page():
    made = data_of(page(recorded(100_000)))
    assert {chart["place"] for chart in made} == {"chart-steps", "chart-losses", "chart-cores", "chart-memory"}
    assert all(len(chart["xs"]) <= MAX_POINTS for chart in made)
    assert all(len(one["values"]) == len(chart["xs"]) for chart in made for one in chart["series"])
    assert len(page(recorded(100_000))) < 300_000


def test_ten_steps_are_drawn_one_by_one():
    made = {chart["place"]: chart for chart in data_of(page(recorded(10)))}
    assert made["chart-steps"]["xs"] == list(range(10))
    assert [one["label"] for one in made["chart-steps"]["series"]] == ["step"]


def test_losses_that_are_no_number_leave_gaps():
    shown = recorded(10)
    run_ = replace(shown.run, losses=(1.0, float("nan"), float("inf"), 0.5))
    made = {chart["place"]: chart for chart in data_of(page(replace(shown, run=run_)))}
    assert made["chart-losses"]["series"][0]["values"] == [1.0, None, None, 0.5]


def test_a_stall_between_the_points_is_not_lost():
    shown = recorded(10_000)
    slow = shown.run.steps[5001]._replace(wall_ns=999 * MS)
    steps = (*shown.run.steps[:5001], slow, *shown.run.steps[5002:])
    made = {chart["place"]: chart for chart in charts(replace(shown, run=replace(shown.run, steps=steps)))}
    assert max(made["chart-steps"]["series"][1]["values"]) == 999
    assert max(made["chart-steps"]["series"][0]["values"]) == 10


def test_a_finding_and_the_recipe_are_shown_as_changes_of_the_source():
    shown = tuned()
    diff = ("--- a/train.py", "+++ b/train.py", "@@ -1,2 +1,2 @@", f" {SCRIPT}", "-a\u202e", "+b < c")
    found = {shown.findings[0]: ReportedChange("In your source", diff)}
    text = page(
        shown, changes=ReportedChanges(found, ReportedChange("The recipe in your source, without denormals", diff[3:]))
    )
    assert SCRIPT not in text
    assert "\u202e" not in text
    assert "The recipe as a patch The recipe in your source, without denormals:" in Reader(text).words
    assert text.count('<li class="added"><code>+b &lt; c</code></li>') == 2
    assert text.count('<li class="quiet">') == 3
    assert "as a patch" not in page(shown)


def test_steps_are_drawn_as_they_ran():
    text = page(drawn())
    assert "2 steps of the deep run, 160 ms together" in text
    rows = re.findall(r'<div class="lane"><span class="quiet">(.*?)</span>.*?aria-label="(.*?)">(.*?)</div>', text)
    assert [name for name, _, _ in rows] == ["steps", "training thread", "worker 0", "worker 1"]
    assert rows[1][1] == "training thread: input 105 ms, backward 30.0 ms, forward 20.0 ms, host 10.0 ms"
    for _, _, spans in rows:
        places = [tuple(map(float, one)) for one in re.findall(r"left:([\d.]+)%;width:([\d.]+)%", spans)]
        assert places and all(left >= 0 and left + width <= 100.01 for left, width in places)
    assert 'class="input" style="left:0.000%;width:31.250%"' in text  # it had begun before
    assert text.count("<i ") == 2 + 8 + 2 * 3


def test_what_the_device_did_is_drawn_and_its_longest_kernels_are_named():
    shown = drawn()
    device = (
        Span(lane="device", name="kernel", start_ns=55 * MS, wall_ns=20 * MS),
        Span(lane="device", name="copy to the device", start_ns=50 * MS, wall_ns=2 * MS),
    )
    work = DeviceWork(
        num_steps=2,
        wall_s=0.16,
        busy_s=0.04,
        num_kernels=2400,
        longest=(DeviceKernel(name=f"void gemm<{SCRIPT}>", count=30, seconds=0.02),),
    )
    causes = replace(shown.run.causes, timeline=(*shown.run.causes.timeline, *device), device_work=work)
    text = page(replace(shown, run=replace(shown.run, causes=causes)))
    assert 'aria-label="device: kernel 20.0 ms, copy to the device 2.00 ms"' in text
    words = Reader(text).words
    assert "The device was busy for 25% of these steps, with 1,200 kernels in each" in words
    assert "15 in a step, 10.0 ms together" in words
    assert SCRIPT not in text


def test_why_the_device_is_not_drawn_is_said():
    shown = drawn()
    causes = replace(shown.run.causes, device_work=DeviceWork(num_steps=0, reason="RuntimeError: CUPTI <b>"))
    text = page(replace(shown, run=replace(shown.run, causes=causes)))
    assert "torch's profiler could not record it (RuntimeError: CUPTI &lt;b&gt;)" in text.replace("&#39;", "'")


def test_a_worker_that_did_nothing_has_a_row():
    shown = drawn(workers=1)
    done = Span(lane="worker 1", name="sample", start_ns=-900, wall_ns=100)
    causes = replace(shown.run.causes, timeline=(*shown.run.causes.timeline, done))
    text = page(replace(shown, run=replace(shown.run, causes=causes)))
    assert 'aria-label="worker 1: nothing"></span>' in text
    assert len(json.loads(chrome_trace(shown))["traceEvents"]) + 1 == len(
        json.loads(chrome_trace(replace(shown, run=replace(shown.run, causes=causes))))["traceEvents"]
    )  # its name


def test_workers_beyond_what_a_screen_shows_are_counted():
    text = page(drawn(workers=40))
    assert "24 more workers are not drawn" in text and "worker 15" in text and "worker 16" not in text


def test_without_pieces_no_steps_are_drawn_as_they_ran():
    assert "as they ran" not in page(ordinary())
