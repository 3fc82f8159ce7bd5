"""Reports to render: an ordinary one, a healthy one, and the odd ones."""

from dataclasses import replace

from flatout.analysis.breakdown import account
from flatout.schema.finding import Ceiling, Evidence, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.report import Report
from flatout.schema.run import End, Environment, Frame, Header, Outside, Run, Step

MS = 1_000_000

ENVIRONMENT = Environment(
    device="cpu",
    num_cpus=2,
    cpu="AMD EPYC",
    memory_bytes=8 * 2**30,
    platform="Linux-6.1-x86_64",
    python="3.11.7",
    torch="2.13.0",
    torch_threads=2,
    start_method="fork",
    variables={"OMP_NUM_THREADS": "2"},
)


def run(num_steps=61, *, launched_s=5, startup_s=3, validation_s=2, **phases_ms):
    """Return a Run of steps alike, the first five times as long, with a validation behind them."""
    phases = tuple(round(phases_ms.get(phase.value, 0) * MS) for phase in STEP_PHASES)
    now = (launched_s + startup_s) * 1000 * MS
    steps = []
    for number in range(num_steps):
        parts = tuple(part * 5 for part in phases) if number == 0 else phases
        steps.append(Step(start_ns=now, wall_ns=sum(parts), phases_ns=parts, first_of_epoch=number == 0))
        now += sum(parts)
    validation = Outside(phase=Phase.VALIDATION, start_ns=now, wall_ns=validation_s * 1000 * MS)
    return Run(
        header=Header(
            script="train.py", argv=("train.py",), launched_ns=launched_s * 1000 * MS, working_folder="/work"
        ),
        environment=ENVIRONMENT,
        steps=tuple(steps),
        outside=(validation,) if validation_s else (),
        samples_per_step=64.0 if num_steps else None,
        end=End(reason="steps", exit_code=0, at_ns=now + validation_s * 1000 * MS),
    )


def finding(code="IN003", name="slow-sample-line", **changes):
    """Return a finding with everything on it."""
    return replace(
        Finding(
            code=code,
            name=name,
            phase=Phase.INPUT,
            share=0.62,
            max_speedup=2.63,
            message="62% of each step (61.8 ms of 99.7 ms, n=60) goes to `ImageDataset.__getitem__` (train.py:48).",
            location=Frame("/work/train.py", 48, "ImageDataset.__getitem__"),
            evidence=(Evidence("seconds a batch", 0.0618, "s"), Evidence("samples", 640.0, "")),
            fixes=("compiled-input", "loader-workers"),
        ),
        **changes,
    )


def report(*findings, folder=".flatout/train/20250102-030405", headroom=(), **run_detail):
    """Return a Report of an input-bound script unless the phases say otherwise."""
    recorded = run(**(run_detail or {"input": 62, "forward": 20, "backward": 15, "optimizer": 2.5, "host": 0.5}))
    return Report(run=recorded, breakdown=account(recorded), findings=findings, headroom=headroom, folder=folder)


def ordinary():
    """Return the report that most people will see: a cause with a line, a second finding, a ceiling, a doubt."""
    return report(
        finding(),
        finding("IN001", "loader-starved", location=None, fixes=(), message="62% of each step waits for the loader."),
        finding(
            "MS001",
            "noisy-machine",
            phase=Phase.OTHER,
            share=0.0,
            max_speedup=1.0,
            location=None,
            fixes=(),
            message="Other processes used 1.2 of 2 cores (n=40).",
        ),
        headroom=(Ceiling(ceiling="device-resident", median_ms=38.0, speedup=2.63),),
    )


def healthy():
    """Return the report of a script that has nothing wrong with it."""
    return report(forward=60, backward=35, optimizer=4, input=1)


def empty():
    """Return the report of a script that made no step."""
    return report(num_steps=0, validation_s=0)


HOSTILE = "x\x1b[31mred\x1b[0m\x07\u202e\u2066evil\u200b[bold]markup[/bold]\r\n\x9b2J\ud800\U000e0041"


def hostile():
    """Return a report in which every text that a script controls tries to take over the terminal."""
    bad = finding(
        name="slow" + HOSTILE,
        message=HOSTILE * 4,
        location=Frame("/work/" + HOSTILE + "/" + "long" * 60 + ".py", 3, HOSTILE),
        evidence=(Evidence(HOSTILE, float("nan"), HOSTILE),),
        fixes=(HOSTILE,),
    )
    whole = report(bad, folder="/tmp/" + HOSTILE, headroom=(Ceiling(ceiling=HOSTILE, median_ms=1.0, speedup=2.0),))
    recorded = replace(
        whole.run,
        header=replace(whole.run.header, script=HOSTILE),
        environment=replace(ENVIRONMENT, device=HOSTILE, torch=HOSTILE),
        notes=(HOSTILE,),
        end=End(reason="script failed", error=HOSTILE),
    )
    return replace(whole, run=recorded)
