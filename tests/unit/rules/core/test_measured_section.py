"""What a page says was measured of its fault."""

import subprocess
import sys

import pytest
from tests.architecture.source import REPO

from flatout.rules import catalog
from flatout.rules.core.measured_section import measured_section, threshold_tables


@pytest.mark.slow
def test_the_table_is_what_the_results_and_recordings_say():
    done = subprocess.run([sys.executable, "scripts/measured", "--check"], cwd=REPO, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_planted_fault_is_shown_with_what_its_repair_brought():
    section = measured_section("IN005", "")
    assert section.startswith("## Measured\n\nEach row is a script of `benchmarks/planted`")
    assert "| rare_defects | 1.91x | 2.2x |" in section


def test_where_a_finding_states_no_gain_the_page_says_so():
    assert "| running_total | not stated | 1.08x |" in measured_section("ME001", "")


def test_of_a_script_that_was_measured_twice_the_last_figure_stands():
    assert measured_section("EP001", "").count("| coin_sorter |") == 1


def test_a_recording_of_a_gpu_is_shown_with_its_steps():
    section = measured_section("TR002", "")
    assert "an NVIDIA H100" in section
    assert "n=151 steps" in section
    assert "at most 1.56x" in section.replace("\n", " ")


def test_where_the_page_has_its_own_figure_nothing_is_added():
    assert measured_section("XX001", "Measured on 2 cores: 3.1 s (n=3).") == ""


def test_where_nobody_measured_it_that_is_said():
    assert measured_section("XX001", "A page.") == "## Measured\n\nNo recording of this fault is kept here yet."


def test_what_other_thresholds_would_find_is_told_with_ours_in_bold():
    section = threshold_tables("CO001")
    rows = [line.split("|") for line in section.partition("| `MIN_SHARE` |")[2].splitlines()]
    values = [cell.strip() for cell in rows[0] if cell.strip()]
    assert values[3] == "**0.15**"
    assert [row[1].strip() for row in rows[2:5]] == ["healthy", "others", "missed"]
    assert all(len(row) == len(rows[0]) + 2 for row in rows[2:5])
    missed = [int(cell) for cell in rows[4][2:-1]]
    assert missed == sorted(missed)
    assert missed[-1] > missed[0]


@pytest.mark.slow
def test_every_code_in_the_table_is_a_rule_s():
    known = {rule.code for rule in catalog()}
    shown = {rule.code for rule in catalog() if "| script |" in rule.measured or "Recorded on" in rule.measured}
    assert len(shown) > 30
    assert shown <= known
