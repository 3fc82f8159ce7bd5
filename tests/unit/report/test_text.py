"""The report as text."""

import io
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.examples import examples
from tests.unit.report.specimens import HOSTILE, empty, finding, healthy, hostile, ordinary, report

from flatout.analysis.breakdown import account
from flatout.report.layout import Look
from flatout.report.text import show, text
from flatout.report.user_source import source_line
from flatout.report.verdict import verdict
from flatout.schema.finding import Evidence
from flatout.schema.phase import Phase
from flatout.schema.run import End, Environment, Frame, RankSummary


def page(shown, width=80, **options):
    return text(shown, Look(width=width), **options).plain


def printed(shown, *, encoding="utf-8", width=80, **console):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    show(shown, Console(file=file, width=width, **console))
    file.flush()
    return raw.getvalue().decode(encoding)


def lines_that_wrap(shown):
    """Return the lines of a page but the one with the folder, which is left whole to be copied."""
    return [line for line in shown.splitlines() if not line.startswith("Recording: ")]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("made", [ordinary, healthy, empty, hostile])
def test_no_line_is_wider_than_the_terminal(made, width):
    shown = printed(made(), width=width)
    assert max(len(line) for line in lines_that_wrap(shown)) <= width


@pytest.mark.parametrize("made", [ordinary, healthy, empty, hostile])
def test_a_pipe_gets_neither_escapes_nor_spaces_at_line_ends(made):
    shown = printed(made())
    assert "\x1b" not in shown
    assert shown == "\n".join(line.rstrip() for line in shown.split("\n"))


def test_an_ordinary_report_fits_on_one_screen():
    assert page(ordinary()).count("\n") < 40


def test_without_colour_the_terminal_gets_none(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown = printed(ordinary(), force_terminal=True, color_system="standard")
    assert "\x1b[3" not in shown
    assert "\x1b[4" not in shown


def test_a_terminal_gets_bars_of_blocks_and_colour():
    shown = printed(ordinary(), force_terminal=True, color_system="standard")
    assert "\u2588" in shown
    assert "\x1b[" in shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_an_encoding_without_unicode_gets_ascii(encoding):
    shown = printed(report(finding(message="caf\u00e9 \u6570\u636e")), encoding=encoding, force_terminal=True)
    assert "caf\\xe9" in shown
    assert shown.isascii()


def test_in_unicode_names_are_shown_as_they_are():
    assert "caf\u00e9" in printed(report(finding(message="caf\u00e9")))


@pytest.mark.parametrize("verbose", [False, True])
def test_nothing_that_a_script_names_reaches_the_terminal_raw(verbose):
    shown = page(hostile(), verbose=verbose)
    kinds = {unicodedata.category(character) for character in shown if character != "\n"}
    assert not kinds & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    assert "[bold]markup[/bold]" in shown.replace("\n", "").replace(" ", "")


@settings(max_examples=examples(50))
@given(st.text(max_size=200), st.integers(30, 120))
def test_any_text_in_any_place_is_shown_within_the_page(words, width):
    odd = finding(name=words, message=words, location=Frame(words, 1, words), fixes=(words,))
    shown = page(replace(report(odd), folder=""), width=width, verbose=True)
    assert "\x1b" not in shown


def test_the_verdict_comes_first_and_names_the_place():
    assert verdict(ordinary()) == (
        "Training waits: 62% of each step is spent loading data; train.py:48 (IN003 slow-sample-line) comes first, "
        "at most 2.6x."
    )


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.15, "20% of each step is the forward pass"),
        (0.3, "38% of each step is forward, backward and optimizer"),
        (0.55, "55% of each step the device computes"),
    ],
)
def test_a_fault_of_all_the_computing_is_not_said_of_one_phase(share, said):
    """The step: 20% forward, 15% backward, 2.5% optimizer."""
    assert verdict(report(finding(phase=Phase.FORWARD, share=share))).startswith(f"Training computes: {said}; ")


def test_a_healthy_script_is_told_so():
    assert verdict(healthy()) == ("Nothing found: healthy. 99% of each step is forward, backward and optimizer.")


def test_nothing_is_called_healthy_that_the_deep_run_did_not_see():
    seen = healthy()
    note = "the deep run measured nothing: lines of code and facts about loaders are missing"
    blind = replace(seen, run=replace(seen.run, notes=(note,)))
    assert verdict(blind).startswith("Nothing is known of causes: the deep run")


def test_waiting_without_a_known_cause_is_not_called_healthy():
    assert verdict(report()) == "No cause found, but 62% of each step is spent loading data."


def test_a_report_without_steps_says_that_nothing_was_measured():
    assert verdict(empty()).startswith("Nothing was measured")


def test_little_to_gain_is_said_first():
    assert verdict(report(finding(max_speedup=1.02))).startswith("Little to gain (at most 1.02x): ")
    assert verdict(report(finding(max_speedup=1.0))).startswith("Little to gain: ")


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_its_sentence(phase):
    assert verdict(report(finding(phase=phase, share=0.31, location=None))).endswith("comes first, at most 2.6x.")


def test_an_endless_speed_up_is_not_printed_as_infinity():
    assert "inf" not in page(report(finding(max_speedup=float("inf"))))


def test_phases_come_in_order_of_size_and_empty_ones_are_dropped():
    shown = page(healthy()).splitlines()
    names = [line.split()[0] for line in shown if line.endswith("#")]
    assert names == ["forward", "backward", "optimizer", "input"]


def test_warm_up_is_named_and_left_out():
    assert "Warm-up: first step, 0.50 s, left out." in page(ordinary())


def test_six_cards_are_shown_and_the_rest_is_counted():
    many = report(*(finding(f"IN{number:03}") for number in range(1, 10)))
    shown = page(many, width=110)
    assert "6. IN006" in shown
    assert "7. IN007" not in shown
    assert "+3 more: flatout report .flatout/train/20250102-030405 --verbose" in shown


def test_verbose_shows_all_cards_with_their_numbers():
    shown = page(report(*(finding(f"IN{number:03}") for number in range(1, 10))), verbose=True)
    assert "9. IN009" in shown
    assert "more:" not in shown
    assert "seconds a batch: 0.06 s" in shown
    assert "samples: 640" in shown


@pytest.mark.parametrize(
    ("unit", "shown"),
    [("ms", "0.50 ms"), ("s", "0.50 s"), ("share", "50%"), ("bytes", "0 B"), ("cores", "0.5 cores"), ("", "0.5")],
)
def test_evidence_is_written_in_its_unit(unit, shown):
    assert f"it: {shown}\n" in page(report(finding(evidence=(Evidence("it", 0.5, unit),))), verbose=True)


def test_doubts_about_the_measurement_stand_apart_at_the_end():
    shown = page(ordinary())
    assert shown.index("About this measurement") > shown.index("2. IN001")
    assert "- MS001 noisy-machine: Other processes used 1.2 of 2 cores (n=40)." in shown


def test_doubts_alone_leave_a_script_healthy():
    doubtful = replace(healthy(), findings=ordinary().findings[2:])
    assert verdict(doubtful).startswith("Nothing found: healthy.")


def test_a_rule_in_preview_is_marked():
    assert "1. IN003 slow-sample-line (preview)" in page(ordinary(), preview={"IN003"})


def test_a_share_says_what_it_is_a_share_of():
    assert "31% of the run, at most" in page(report(finding(phase=Phase.VALIDATION, share=0.31)))
    assert " 31%, at most" in page(report(finding(phase=Phase.CHECKPOINT, share=0.31)))


def test_the_line_of_code_is_shown(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\n    image = Image.open(path)\n", encoding="utf-8")
    shown = page(report(finding(location=Frame(str(script), 2, "load"))))
    assert "     image = Image.open(path)\n" in shown


@pytest.mark.parametrize("file", ["/nowhere/train.py", "\0", "", "<string>", "/dev/zero"])
def test_a_file_that_is_gone_or_odd_has_no_line(file):
    assert source_line(Frame(file, 1, "f")) == ""


def test_a_file_that_changed_since_is_not_quoted(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("x = 1\n", encoding="utf-8")
    assert source_line(Frame(str(script), 1, "f"), not_after_s=1.0) == ""
    assert source_line(Frame(str(script), 99, "f")) == ""


def test_a_huge_file_is_not_read(tmp_path):
    script = tmp_path / "train.py"
    with script.open("wb") as file:
        file.truncate(5_000_000)
    assert source_line(Frame(str(script), 1, "f")) == ""


def test_a_long_path_gives_way_in_its_middle():
    deep = Frame("/work/" + "very/" * 30 + "train.py", 7, "step")
    line = next(line for line in page(report(finding(location=deep))).splitlines() if ":7 in step" in line)
    assert "..." in line
    assert line.endswith("/train.py:7 in step")


def test_files_are_named_as_seen_from_the_working_folder():
    assert "   train.py:48 in ImageDataset.__getitem__\n" in page(ordinary())
    outside = report(finding(location=Frame("/elsewhere/a.py", 1, "")))
    assert "   /elsewhere/a.py:1\n" in page(outside)


def test_ranks_name_the_slowest():
    whole = ordinary()
    ranks = tuple(RankSummary(rank=number, num_steps=9, median_ms=100 + number) for number in range(4))
    shown = page(replace(whole, run=replace(whole.run, ranks=ranks)), width=110)
    assert "Ranks: 4; rank 3 is the slowest (103 ms a step), rank 0 the fastest (100 ms)." in shown


def test_a_recording_that_ended_badly_says_so():
    whole = ordinary()
    failed = replace(whole, run=replace(whole.run, end=End(reason="script failed", error="ValueError: no")))
    killed = replace(whole, run=replace(whole.run, end=End(reason="killed")))
    assert "The script failed after 61 steps: ValueError: no" in page(failed)
    assert "The script was killed after 61 steps." in page(killed)


def test_several_devices_are_counted():
    whole = ordinary()
    gpus = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=8)
    assert page(replace(whole, run=replace(whole.run, environment=gpus))).startswith("train.py on 8 x NVIDIA H200\n")


def test_the_folder_is_left_whole_to_be_copied():
    folder = "/data/" + "long/" * 40
    assert f"Recording: {folder}\n" in page(replace(ordinary(), folder=folder), width=40) + "\n"


def test_a_report_of_nothing_is_a_page_all_the_same():
    nothing = replace(empty(), run=replace(empty().run, environment=Environment()), folder="")
    assert page(replace(nothing, breakdown=account(nothing.run))).startswith("train.py on cpu (1 core)")


def test_an_empty_name_is_shown_as_unknown():
    whole = ordinary()
    assert page(replace(whole, run=replace(whole.run, header=replace(whole.run.header, script="")))).startswith(
        "unknown script"
    )


def test_hostile_text_is_what_the_tests_think_it_is():
    assert "\x1b" in HOSTILE
