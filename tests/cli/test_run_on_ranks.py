"""`flatout run --nproc-per-node`: what `flatout.cli.ranks` says before and after a training, and what it prints.

Modules: flatout.report.batch_file.
"""

from dataclasses import replace
from pathlib import Path

import click
import pytest
from tests.unit.report.specimens import comparison, ordinary

from flatout.cli.main import cli, run
from flatout.engine.ranked_target import why_no_private_copy
from flatout.engine.recipe import read_recipe, write_recipe
from flatout.engine.slurm import Partition
from flatout.engine.train import Trained
from flatout.engine.train_ranks import RanksTrained
from flatout.schema.ranks import FailureKind, RankFailure
from flatout.schema.recipe import Kept, Proof, RankProof, Recipe
from flatout.schema.trial import RANKS, Candidate, Equivalence, Selection, Trial, Verdict

NET = {"cut": 12, "rows": [4, 4], "few": 0, "whole": {}}


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass\n")


@pytest.fixture
def trained(monkeypatch):
    """Return what a training on ranks gives, to be changed, and what it was asked. Private copies are possible."""
    found, asked = RanksTrained(0, [{"rank": 0, "modules": {"Net": NET}, "seconds": {"proof": 1.0}}]), []

    def train(target, placement):
        asked.append((target, placement))
        return found

    monkeypatch.setattr("flatout.engine.train_ranks.train_on_ranks", train)
    monkeypatch.setattr("flatout.engine.ranked_target.why_no_private_copy", lambda target: "")
    return found, asked


@pytest.fixture
def alone(monkeypatch):
    """Return the trainings of one process that were asked for: the command, and whether it is shown."""
    asked = []

    def train(target, selections, panel=None, *, edited=()):
        asked.append(target.command)
        return Trained(0, [])

    monkeypatch.setattr("flatout.engine.train.train", train)
    return asked


def test_ranks_need_no_recipe_and_say_what_was_cut(script, trained, capsys):
    assert run(["run", "--nproc-per-node", "2", "--verbose", "train.py", "--epochs", "3"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "flatout: train.py trains on 2 ranks, with the batches and results of one process",
        "flatout: Net: 12 calls by rows (4 + 4 of 8 in the first)",
        "flatout: the input was made 2 times, once by each rank; 1.0 s to prove it on copies",
        "flatout: rank 0: proof 1.00 s",
    ]
    ((target, placement),) = trained[1]
    assert target.command[-3:] == ("train.py", "--epochs", "3")
    assert placement.ranks == 2


def test_a_rank_that_failed_is_shown_with_what_it_said(script, trained, capsys):
    trained[0].exit_code, trained[0].failed_rank, trained[0].said = 1, 1, "Traceback\nValueError: why\n"
    assert run(["run", "--nproc-per-node", "2", "train.py"]) == 1
    assert "flatout: rank 1 has failed:\nTraceback\nValueError: why\n" in capsys.readouterr().err


def test_a_rank_that_was_killed_is_named_with_the_signal(script, trained, capsys):
    trained[0].exit_code, trained[0].failed_rank = 137, 0
    trained[0].killed = RankFailure(kind=FailureKind.RANK, rank=0, code=-9)
    assert run(["run", "--nproc-per-node", "2", "train.py"]) == 137
    assert "flatout: rank 0 was killed by SIGKILL: the kernel does so when memory runs out" in capsys.readouterr().err


def test_what_a_killed_rank_has_written_is_shown(script, trained, capsys):
    trained[0].exit_code, trained[0].failed_rank, trained[0].said = 139, 1, "Fatal Python error: Segmentation fault\n"
    trained[0].killed = RankFailure(kind=FailureKind.RANK, rank=1, code=-11)
    assert run(["run", "--nproc-per-node", "2", "train.py"]) == 139
    told = capsys.readouterr().err
    assert "rank 1 was killed by SIGSEGV" in told
    assert "flatout: rank 1 has written:\nFatal Python error: Segmentation fault\n" in told


def test_failures_on_other_machines_are_told(script, trained, capsys):
    trained[0].exit_code = 1
    trained[0].elsewhere = (RankFailure(kind=FailureKind.UNREACHABLE, host="node7"),)
    assert run(["run", "--nproc-per-node", "2", "train.py"]) == 1
    assert "flatout: node7 cannot be reached any more" in capsys.readouterr().err


def test_machines_that_do_not_meet_are_told_with_the_reason(script, trained, capsys):
    trained[0].exit_code, trained[0].accounts, trained[0].not_begun = 70, [], "RendezvousTimeoutError: late"
    assert run(["run", "--nproc-per-node", "2", "train.py"]) == 70
    assert "the machines have not met, and nothing was trained: RendezvousTimeoutError: late" in capsys.readouterr().err


def test_a_batch_file_is_printed_and_nothing_is_trained(script, trained, capsys, monkeypatch):
    monkeypatch.setattr("flatout.engine.slurm.default_partition", lambda: Partition("big", 64, 8, "12:00:00"))
    words = ["--nproc-per-node", "8", "--nnodes", "4", "--print-sbatch", "train.py", "--name", "a b"]
    assert run(["run", *words]) == 0
    text, told = capsys.readouterr()
    assert text.splitlines()[:8] == [
        "#!/bin/bash",
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --cpus-per-task=64",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --time=12:00:00",
        "#SBATCH --output=%x-%j.out",
    ]
    assert text.endswith("-m flatout run --nproc-per-node 8 train.py --name 'a b'\n")
    assert told == ""
    assert trained[1] == []


def test_one_rank_for_each_gpu_of_the_partition(script, capsys, monkeypatch):
    monkeypatch.setattr("flatout.engine.slurm.default_partition", lambda: Partition("big", 0, 4, ""))
    assert run(["run", "--nproc-per-node", "gpu", "--print-sbatch", "train.py"]) == 0
    text = capsys.readouterr().out
    assert "#SBATCH --nodes=1\n" in text
    assert "#SBATCH --gpus-per-node=4\n" in text
    assert "cpus-per-task" not in text
    assert "--nproc-per-node gpu train.py\n" in text


def test_what_is_said_of_the_machines_of_a_job_comes_before_the_training(script, trained, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NNODES", "2")
    assert run(["run", "--nproc-per-node", "2", "train.py"]) == 0
    assert "on one of the 2 machines of this job; srun starts it on all: srun --ntasks" in capsys.readouterr().err


def test_without_a_private_copy_nothing_is_trained(script, trained, capsys):
    trained[0].refused = "it is switched off"
    assert run(["run", "--nproc-per-node", "2", "train.py"]) == 3
    assert "cannot have a private copy of the file system here (it is switched off)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nproc-per-node", "none", "train.py"], "write a number of processes, or gpu"),
        (["--nnodes", "2", "train.py"], "and that is not given"),
        (["--nproc-per-node", "2", "--nnodes", "2", "train.py"], "needs a place where the machines meet"),
        (["--shard", "train.py"], "Try: flatout run --nproc-per-node 2 --shard train.py"),
        (["--nproc-per-node", "2", "--nnodes", "x", "train.py"], "--nnodes x: write a number of machines"),
        (["--nproc-per-node", "2", "--nnodes", "2", "--rdzv-endpoint", "2", "train.py"], "and a free port of it"),
        (["--nproc-per-node", "2", "--rdzv-endpoint", "h:1", "train.py"], "Each of them would train on its own"),
        (["--nproc-per-node", "", "train.py"], "write a number of processes, or gpu"),
        (["--nproc-per-node", "loader-workers", "train.py"], "write a number of processes, or gpu"),
        (["--nproc-per-node", "2", "--shard=all", "--nnodes", "", "train.py"], "write a number of machines"),
        (["--nproc-per-node", "2", "--shard=some", "train.py"], "'some' is not one of 'all', 'node'"),
        (["--nproc-per-node", "2", "--only", "no-such-fix", "train.py"], "--only is about the fixes of a recipe"),
        (
            ["--nproc-per-node", "2", "--on-change", "stop", "--allow-edits", "train.py"],
            "--on-change and --allow-edits",
        ),
        (["--nproc-per-node", "2", "--recipe", "missing.toml", "train.py"], "no file missing.toml"),
        (["--nproc-per-node", "2", "--live", "--print-sbatch", "train.py"], "--live shows one process"),
        (
            ["--nproc-per-node", "2", "--rdzv-endpoint", "h:1", "--print-sbatch", "train.py"],
            "Leave --rdzv-endpoint out",
        ),
        (["--nproc-per-node", "2", "--live", "train.py"], "Leave one out"),
        (["--print-sbatch", "train.py"], "needs the number of ranks on each machine"),
        (["--nnodes", "2", "--print-sbatch", "train.py"], "and that is not given"),
        (["--nproc-per-node", "two", "--print-sbatch", "train.py"], "write a number of processes, or gpu"),
    ],
)
def test_words_that_make_no_sense_are_told_before_anything_runs(script, trained, capsys, words, told):
    assert run(["run", *words]) == 2
    assert told in capsys.readouterr().err
    assert trained[1] == []


@pytest.mark.parametrize(
    ("words", "shard"),
    [
        (["--shard", "train.py"], "all"),
        (["--shard", "node", "train.py"], "node"),
        (["--shard=node", "train.py", "--shard", "x"], "node"),
        (["--verbose", "--shard", "--recipe", "other.toml", "-m", "train"], "all"),
        (["train.py", "--shard"], ""),
    ],
)
def test_shard_needs_no_value_before_the_script(script, trained, words, shard):
    Path("other.toml").touch()
    assert run(["run", "--nproc-per-node", "2", *words]) == 0
    ((target, placement),) = trained[1]
    assert placement.shard == shard and placement.nodes == 1
    assert target.name == "train" if "-m" in words else "train.py"
    if words[-1] in ("x", "--shard"):
        assert "--shard" in target.command


@pytest.mark.parametrize("flag", ["--print-sbatch", "--verbose", "--allow-edits", "--live"])
def test_what_stands_behind_a_flag_is_no_value_of_it(flag):
    """Else the words of the script are read on, and its own `--shard` is changed."""
    command = cli.get_command(click.Context(cli), "run")
    context = command.make_context("run", [flag, "train.py", "--shard", "8"])
    assert context.params["words"] == ("train.py", "--shard", "8")


def test_what_was_shared_out_is_said(script, trained, capsys):
    trained[0].accounts[0] |= {
        "shard": True,
        "sharded": {"own": 5e6, "whole": 1e7, "together": 2e6},
        "unsharded": ["why"],
    }
    assert run(["run", "--nproc-per-node", "2", "--shard", "train.py"]) == 0
    said = capsys.readouterr().err
    assert "flatout: each rank keeps a share of parameters, gradients and optimizer state\n" in said
    assert "optimizer state: 5.00 MB on this rank, of 10.00 MB in one process" in said
    assert "at most 2.00 MB were whole at a time" in said and "stayed whole on every rank: why" in said


def test_a_launcher_line_is_refused(script, capsys):
    assert run(["run", "--nproc-per-node", "2", "--", "env", "train.py"]) == 2
    assert "Leave the launcher out" in capsys.readouterr().err
    assert run(["run", "--nproc-per-node", "2", "--print-sbatch", "--", "env", "train.py"]) == 2
    assert "Leave the launcher out" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------- the recipe
def recipe(speedup, **parts):
    proof = Proof(date="2026-11-29T12:00:00Z", flatout="0.1.0", python="3.11.7", torch="2.13.0", device="cpu",
                  speedup=speedup, low=1.1, high=3.0)  # fmt: skip
    return Recipe(**{"script": "train.py", "fixes": (), "proof": proof, **parts})


ON_TWO = RankProof(number=2, equivalence=Equivalence.ROUNDING, steps=64, speedup=1.5, low=1.3, high=1.7)


def test_a_recipe_for_ranks_trains_on_them(script, trained, capsys):
    write_recipe(recipe(1.5, ranks=ON_TWO), Path("flatout.toml"))
    assert run(["run", "train.py"]) == 0
    said = capsys.readouterr().err.splitlines()
    proven = "2 ranks, proven 1.50x as fast (1.30 to 1.70) with results equal by ROUNDING over 64 steps"
    assert said[0] == f"flatout: flatout.toml: {proven}"
    assert trained[1][0][1].ranks == 2


def test_ranks_of_a_recipe_that_are_refused_after_all_name_the_way_out(script, trained, capsys):
    trained[0].refused = "no room"
    write_recipe(recipe(1.5, ranks=ON_TWO), Path("flatout.toml"))
    assert run(["run", "train.py"]) == 3
    said = capsys.readouterr().err
    assert "delete the table [ranks] in flatout.toml" in said and "without --nproc-per-node" not in said


def test_a_number_of_ranks_given_by_hand_comes_first(script, trained, capsys):
    write_recipe(recipe(1.5, ranks=ON_TWO), Path("flatout.toml"))
    assert run(["run", "--nproc-per-node", "4", "train.py"]) == 0
    assert trained[1][0][1].ranks == 4


def test_a_recipe_for_ranks_cannot_be_shown_live_and_the_table_is_named(script, trained, alone, capsys):
    write_recipe(recipe(1.5, ranks=ON_TWO), Path("flatout.toml"))
    assert run(["run", "--live", "train.py"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--live shows one process, and [ranks] of flatout.toml starts 2." in said
    assert "Leave --live out. To train in one process, delete the table [ranks] in flatout.toml." in said
    assert trained[1] == alone == []


@pytest.mark.parametrize(
    ("words", "variables", "why"),
    [
        (["--", "env", "train.py"], {}, "of a script or module alone, and the command line begins with env"),
        (["train.py"], {"RANK": "1", "WORLD_SIZE": "4"}, "WORLD_SIZE says that this is one of 4 processes already"),
        (
            ["train.py"],
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
            "WORLD_SIZE says that this is one of 2 processes already",
        ),
        (["train.py"], {"FLATOUT_WORLD": "off"}, "a private copy of the file system here (it is switched off)"),
    ],
)
def test_where_the_ranks_of_a_recipe_cannot_be_one_process_trains(
    script, trained, alone, capsys, monkeypatch, words, variables, why
):
    monkeypatch.setattr("flatout.engine.ranked_target.why_no_private_copy", why_no_private_copy)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    write_recipe(recipe(1.5, ranks=ON_TWO), Path("flatout.toml"))
    assert run(["run", *words]) == 0
    said = capsys.readouterr().err
    assert "flatout: [ranks] of flatout.toml, 2 ranks, is left out: " in said and why in said
    assert "train.py trains unchanged" in said
    assert trained[1] == []
    assert [command[-1] for command in alone] == ["train.py"]


def test_a_launcher_line_can_be_shown_live_beside_a_recipe_for_ranks(script, trained, alone):
    write_recipe(recipe(1.5, ranks=ON_TWO), Path("flatout.toml"))
    assert run(["run", "--live", "--", "env", "train.py"]) == 0
    assert trained[1] == [] and len(alone) == 1


def test_a_variable_of_one_process_leaves_the_ranks_of_a_recipe(script, trained, alone, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    write_recipe(recipe(1.5, ranks=ON_TWO), Path("flatout.toml"))
    assert run(["run", "train.py"]) == 0
    assert alone == [] and len(trained[1]) == 1


@pytest.mark.parametrize(
    ("variables", "advice"),
    [
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2"}, "srun --nodes 1 --ntasks 1"),
        ({"PET_NNODES": "2", "PET_MASTER_ADDR": "a"}, "without the variable PET_NNODES"),
    ],
)
@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["run", "train.py"], "flatout.toml was proven on 2 ranks of one machine"),
        (["tune", "--nproc-per-node", "2", "train.py"], "A recipe for ranks is proven on one machine"),
        (["diagnose", "--nproc-per-node", "2", "train.py"], "A diagnosis on ranks is that of one machine"),
    ],
)
def test_what_knows_one_machine_is_not_started_on_several(
    script, trained, tuned, engine, capsys, monkeypatch, words, fact, variables, advice
):
    for name, value in {**variables, "FLATOUT_WORLD": "off"}.items():  # one process on each were two trainings
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("flatout.engine.ranked_target.why_no_private_copy", why_no_private_copy)
    write_recipe(recipe(1.5, ranks=ON_TWO), Path("flatout.toml"))
    assert run(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{fact}, and this was started on 2 machines." in said and advice in said
    assert trained[1] == tuned == engine.calls == []


def test_options_about_fixes_are_named_where_the_recipe_has_ranks(script, trained, capsys):
    write_recipe(recipe(1.5, ranks=ON_TWO), Path("flatout.toml"))
    assert run(["run", "--on-change", "warn", "--allow-edits", "train.py"]) == 0
    said = "on ranks no fix is applied, so --on-change and --allow-edits mean nothing"
    assert f"flatout: {said}\n" in capsys.readouterr().err
    assert run(["run", "train.py"]) == 0
    assert "mean nothing" not in capsys.readouterr().err


def test_a_recipe_that_is_given_has_to_be_there_and_its_fixes_are_left_out(script, trained, capsys):
    write_recipe(recipe(2.0), Path("other.toml"))
    assert run(["run", "--nproc-per-node", "2", "--recipe", "other.toml", "train.py"]) == 0
    assert "the fixes of other.toml were proven in one process, and are left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tune", "--only", "4", "train.py"], "--only 4: this option takes names, and no number of ranks."),
        (["tune", "--also", "4", "train.py"], "--also 4: this option takes names, and no number of ranks."),
        (["tune", "--only", "GPU", "train.py"], "For ranks: --nproc-per-node GPU"),
        (["diagnose", "--only", "4", "train.py"], "For ranks: --nproc-per-node 4"),
        (["tune", "--nproc-per-node", "loader-workers", "train.py"], "write a number of processes, or gpu"),
        (["diagnose", "--nproc-per-node", "IN001", "train.py"], "write a number of processes, or gpu"),
        (["tune", "--edit", "tf32", "train.py"], "For a fix: --also tf32"),
        (["tune", "--also", "change.diff", "train.py"], "For a diff: --edit change.diff"),
    ],
)
def test_what_belongs_to_another_option_is_refused_and_that_is_named(
    script, tuned, engine, search, capsys, words, told
):
    assert run(words) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert tuned == engine.calls == search.calls == []


@pytest.fixture
def tuned(monkeypatch):
    """A tune on ranks that kept two of them, and what it was asked."""
    asked = []

    def tune(target, placement, **limits):
        asked.append((target.name, placement.ranks, limits["budget_s"]))
        asked_for = Candidate(selection=Selection(RANKS, {"number": 2}), equivalence=Equivalence.ROUNDING)
        trial = Trial(number=1, candidate=asked_for, verdict=Verdict.KEPT, comparison=comparison(1.5))
        return replace(ordinary(), trials=(trial,), recipe=recipe(1.5, ranks=ON_TWO), folder="")

    monkeypatch.setattr("flatout.engine.tune_ranks.tune_on_ranks", tune)
    return asked


def test_what_was_kept_on_ranks_is_shown_and_written(script, tuned, capsys):
    assert run(["tune", "--nproc-per-node", "2", "--budget", "30", "train.py"]) == 0
    assert tuned == [("train.py", 2, 30.0)]
    assert read_recipe(Path("flatout.toml")).ranks == ON_TWO
    assert "2 ranks" in capsys.readouterr().out


def test_a_recipe_that_gives_more_stays(script, tuned, capsys):
    kept = Kept(selection=Selection("fused-optimizer"), equivalence=Equivalence.ROUNDING, speedup=2.0)
    write_recipe(recipe(2.0, fixes=(kept,)), Path("flatout.toml"))
    before = Path("flatout.toml").read_text()
    assert run(["tune", "--nproc-per-node", "2", "train.py"]) == 0
    assert Path("flatout.toml").read_text() == before
    assert "its fixes gave 2.00x, ranks 1.50x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tune", "--nproc-per-node", "2", "--only", "fused-optimizer", "train.py"], "tries ranks, and no fix"),
        (["tune", "--nproc-per-node", "2", "--edit", "x.diff", "train.py"], "tries ranks, and no fix"),
        (
            ["tune", "--nproc-per-node", "2", "--equal", "BITWISE", "train.py"],
            "--equal bitwise cannot be held on ranks",
        ),
        (["tune", "--nproc-per-node", "1", "train.py"], "One rank is one process"),
        (["diagnose", "--nproc-per-node", "2", "--whole", "train.py"], "leave out --nproc-per-node"),
    ],
)
def test_what_does_not_go_together_with_ranks_is_told(script, tuned, capsys, words, told):
    assert run(words) == 2
    assert told in capsys.readouterr().err
    assert tuned == []
