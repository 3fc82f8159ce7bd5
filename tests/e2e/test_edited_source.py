"""Edits of the source on real trainings: tried by `tune`, served by `run`, written by `patch`; files untouched.

Modules: flatout.fixes.edited_source.
"""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

from flatout.edits.diff import unified_diff
from flatout.edits.given_diff import edit_of
from flatout.engine.process.edit_seal import seal
from flatout.engine.recipe import RECIPE_FILE, write_recipe
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Equivalence, Selection
from tests.e2e.support import picture, training

PROOF = Proof(date="2026-11-29", flatout="0.1.0", python="", torch="", device="")
SCRIPT = training(step_s=0.01)
FASTER = SCRIPT.replace("time.sleep(0.01)", "time.sleep(0.003)")
TOLD = training(step_s=0.01, each_step="if done % 4 == 0: print(f'error {loss.item():.4f}, {time.time() % 60:.3f} s')")
TOLD_FASTER = TOLD.replace("time.sleep(0.01)", "time.sleep(0.003)")
WRONG = TOLD_FASTER.replace("lr=0.01", "lr=0.011")
METRIC = TOLD_FASTER.replace("loss.item()", "loss.item() / 8")
BROKEN = TOLD_FASTER.replace("    done += 1\n", "    done += 1 if done < 20 else undefined\n")


@pytest.fixture
def project(flatout):
    flatout.environment |= {"XDG_STATE_HOME": str(flatout.folder.parent / "state"), "OMP_NUM_THREADS": "1"}
    return flatout


@pytest.fixture
def own_state(project, monkeypatch):
    """Make the seals of this process those of the project's user."""
    monkeypatch.setenv("XDG_STATE_HOME", project.environment["XDG_STATE_HOME"])
    return project


def diff(project, name, edited, script=SCRIPT, of="train.py"):
    text = unified_diff(script.encode(), edited.encode(), of).decode()
    (project.folder / name).write_text(text)
    return name


def report_of(project, *words, budget="150s"):
    process = project.start(
        "tune", "--equal", "bitwise", "--budget", budget, "--json", "report.json", *words, "train.py"
    )
    ended = project.wait(process, timeout=290)
    path = project.folder / "report.json"
    return ended, json.loads(path.read_text()) if path.exists() else None


def verdicts(report):
    return {trial["settings"].get("edit", trial["fix"]): trial for trial in report["trials"]}


# ----------------------------------------------------------------------------------------------------------------- tune
@pytest.mark.alone
def test_a_faster_and_equal_edit_is_kept_run_and_written_and_the_files_stay_as_they_are(project):
    path = project.write(SCRIPT)
    before = picture(project.folder)
    ended, report = report_of(project, "--only", diff(project, "faster.diff", FASTER))
    assert ended.code == 0, ended.err
    trial = verdicts(report)["faster.diff"]
    assert (trial["verdict"], trial["equivalence"], trial["results_equal"]) == ("KEPT", "BITWISE", True)
    assert 1.5 < trial["speedup"] < 4
    assert "edit faster.diff" in ended.out
    after = picture(project.folder)
    assert {name: after[name] for name in before} == before
    (fix,) = tomllib.loads((project.folder / RECIPE_FILE).read_text())["fix"]
    assert "+    time.sleep(0.003)" in fix["settings"]["diff"]
    patched = project("patch", "train.py")
    assert patched.code == 0, patched.err
    assert "-    time.sleep(0.01)\n+    time.sleep(0.003)\n" in patched.out
    assert path.read_text() == SCRIPT
    assert project("patch", "--write", "train.py").code == 0
    assert path.read_text() == FASTER
    assert (project.folder / "train.py.orig").read_text() == SCRIPT
    again = project("patch", "train.py")
    assert "edit faster.diff: already in the source" in again.err


@pytest.mark.alone
def test_edits_that_change_results_or_break_the_script_are_refused_by_name(project):
    project.write(TOLD)
    before = picture(project.folder)
    words = [word for name, text in (("wrong.diff", WRONG), ("metric.diff", METRIC), ("broken.diff", BROKEN))
             for word in ("--only", diff(project, name, text, TOLD))]  # fmt: skip
    ended, report = report_of(project, *words, budget="230s")
    assert ended.code == 0, ended.err
    found = verdicts(report)
    assert found["wrong.diff"]["verdict"] == "RESULTS_DIFFER"
    assert found["wrong.diff"]["reason"] == "the learning rate of step 0 is 0.011, not 0.01"
    assert found["metric.diff"]["verdict"] == "RESULTS_DIFFER"
    assert re.match(r"before step \d+ ends, `error .* is printed, not `error", found["metric.diff"]["reason"])
    assert found["broken.diff"]["verdict"] in ("CRASHED", "UNDECIDED")  # it runs well for a while
    assert "undefined" in found["broken.diff"]["reason"]
    assert report["recipe"] is None
    after = picture(project.folder)
    assert {name: after[name] for name in before} == before


@pytest.mark.alone
@pytest.mark.full
def test_a_finding_s_line_is_tried_as_an_edit(project):
    heap = "import gc\nheap = [[number] for number in range(400_000)]"
    project.write(training(step_s=0.001, before=heap, each_step="gc.collect()"))
    ended, report = report_of(project, "--only", "HO004")
    assert ended.code == 0, ended.err
    tried = [
        trial for name, trial in verdicts(report).items() if name.startswith("HO004 gc.collect left out (train.py:")
    ]
    assert [trial["verdict"] for trial in tried] == ["KEPT"], report["trials"]
    (finding,) = [each for each in report["findings"] if each["code"] == "HO004"]
    assert any("gc.collect()" in line["text"] for line in finding["location"]["code"])


# ------------------------------------------------------------------------------------------------------------------ run
def recipe(project, *edits, own=True, script="train.py", more=()):
    kept = [
        Kept(selection=each, equivalence=Equivalence.BITWISE, seal=seal(each, Equivalence.BITWISE) if own else "")
        for each in edits
    ]
    kept += [Kept(selection=each, equivalence=Equivalence.BITWISE) for each in more]
    write_recipe(Recipe(script=script, fixes=tuple(kept), proof=PROOF), project.folder / RECIPE_FILE)


def edit(project, name, old, new):
    project.write(old, name)
    return edit_of("change.diff", {name: (old.encode(), new.encode())}).selection


SHORT = training(steps=20, step_s=0.001, after="print('old')")


def lines(ended):
    return [line.removeprefix("flatout: ") for line in ended.err.splitlines() if line.startswith("flatout: ")]


def test_an_edit_of_one_s_own_runs_and_what_it_did_is_told(own_state):
    recipe(own_state, edit(own_state, "train.py", SHORT, SHORT.replace("'old'", "'new'")))
    before = picture(own_state.folder)
    ended = own_state("run", "train.py")
    assert (ended.code, ended.out) == (0, "new\n"), ended.err
    assert "  edit change.diff (BITWISE, 1.00x)" in lines(ended)
    assert "edit change.diff: train.py 1" in lines(ended)
    assert picture(own_state.folder) == before


def test_a_stranger_s_edit_is_left_out_with_one_line_until_it_is_allowed(own_state):
    changed = edit(own_state, "train.py", SHORT, SHORT.replace("'old'", "'new'"))
    recipe(own_state, changed, own=False, more=(Selection("gc-control"),))
    ended = own_state("run", "train.py")
    assert ended.out == "old\n"
    (told,) = [line for line in lines(ended) if "edit change.diff" in line]
    assert told.startswith(
        "warning: edit change.diff is left out: it is code that your own `flatout tune` did not make"
    )
    assert any(line.startswith("gc-control") for line in lines(ended))
    assert own_state("run", "--allow-edits", "train.py").out == "new\n"
    assert own_state("run", "train.py").out == "new\n"


def test_a_file_that_has_changed_runs_as_it_is_with_one_line_and_the_rest_acts(own_state):
    changed = edit(own_state, "train.py", SHORT, SHORT.replace("'old'", "'new'"))
    recipe(own_state, changed, more=(Selection("gc-control"),))
    own_state.write(SHORT.replace("'old'", "'mine'"))
    ended = own_state("run", "train.py")
    assert (ended.code, ended.out) == (0, "mine\n")
    (told,) = [line for line in lines(ended) if "edit change.diff" in line]
    assert told == "warning: edit change.diff is left out: train.py has changed since the edit was made"
    assert any(line.startswith("gc-control") for line in lines(ended))


RANKS = """
import torch.distributed as dist
if __name__ == "__main__":
    dist.init_process_group("gloo")
    os.write(1, f"<XXX {dist.get_rank()}>".encode())
"""


def test_ranks_of_torchrun_run_the_edited_text(own_state):
    script = training(steps=5, before=RANKS.replace("XXX", "old"))
    recipe(own_state, edit(own_state, "train.py", script, script.replace("<old", "<new")))
    ended = own_state("run", "--", "torchrun", "--standalone", "--nproc-per-node", "2", "train.py")
    assert ended.code == 0, ended.err
    assert sorted(re.findall(r"<\w+ \d>", ended.out)) == ["<new 0>", "<new 1>"]


SPAWNED = """
import multiprocessing
from data import Data

def main():
    loader = DataLoader(Data(), batch_size=8, num_workers=2, multiprocessing_context="METHOD")
    for x, y in loader:
        step(x, y)
    print(sorted(set(x.flatten().tolist())))
"""
DATA = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return torch.full((8,), 1.0), torch.zeros(1)
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_loader_workers_make_samples_by_the_edited_text(own_state, method):
    script = training(steps=5, before="from data import Data").replace("def main():", "def unused():")
    script = script.replace(
        'if __name__ == "__main__":', SPAWNED.replace("METHOD", method) + '\nif __name__ == "__main__":'
    )
    own_state.write(script)
    recipe(own_state, edit(own_state, "data.py", DATA, DATA.replace("1.0", "2.0")))
    ended = own_state("run", "train.py")
    assert ended.code == 0, ended.err
    assert ended.out == "[2.0]\n"


def test_a_traceback_shows_the_edited_lines_and_nothing_of_ours(own_state):
    script = training(steps=3, after="1 / 1")
    recipe(own_state, edit(own_state, "train.py", script, script.replace("1 / 1", "1 / 0  # as edited")))
    ended = own_state("run", "train.py")
    assert ended.code == 1
    assert "    1 / 0  # as edited\n" in ended.err
    assert "runpy" not in ended.err
    assert "flatout/" not in ended.err.replace(str(own_state.folder), "")


def test_a_module_of_a_package_is_trained_as_edited(own_state):
    own_state.write("", "mine/__init__.py")
    script = training(steps=3, after="print('old', __spec__.name)")
    recipe(own_state, edit(own_state, "mine/train.py", script, script.replace("'old'", "'new'")), script="mine.train")
    assert own_state("run", "-m", "mine.train").out == "new mine.train\n"


def test_what_runs_the_script_in_its_own_way_does_without_the_edit_and_says_so(own_state):
    recipe(own_state, edit(own_state, "train.py", SHORT, SHORT.replace("'old'", "'new'")))
    ended = own_state("run", "--", sys.executable, "-m", "cProfile", "-o", os.devnull, "train.py")
    assert ended.code == 0, ended.err
    assert ended.out == "old\n"
    assert "edit change.diff: found nothing to act on" in lines(ended)


def test_a_script_started_by_hand_is_not_touched(own_state):
    recipe(own_state, edit(own_state, "train.py", SHORT, SHORT.replace("'old'", "'new'")))
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=own_state.folder, capture_output=True, text=True, check=True, timeout=60
    )
    assert plain.stdout == "old\n"
