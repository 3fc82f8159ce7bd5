"""Reports to render: an ordinary one, a healthy one, and the odd ones."""

from dataclasses import replace

from flatout.analysis.breakdown import account
from flatout.schema.finding import Ceiling, Evidence, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.report import Report
from flatout.schema.run import Causes, End, Environment, Frame, Header, Outside, Run, Span, Step
from flatout.schema.trial import Candidate, Check, Comparison, Equality, Equivalence, Pair, Selection, Trial, Verdict

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


def drawn(workers=2):
    """Return the same with two steps as they ran, read by some workers."""
    shown, spans = ordinary(), []
    for number in (0, 1):
        at = 80 * MS * number
        spans.append(Span(lane="steps", name=f"step {number + 7}", start_ns=at, wall_ns=80 * MS))
        for name, start, wall in (("input", -5, 55), ("forward", 50, 10), ("backward", 60, 15), ("host", 75, 5)):
            spans.append(Span(lane="training thread", name=name, start_ns=at + start * MS, wall_ns=wall * MS))
    for worker in range(workers):
        for start, name, wall in ((-40, "sample", 70), (30, "collate", 10), (50, "sample", 200)):
            spans.append(Span(lane=f"worker {worker}", name=name, start_ns=start * MS, wall_ns=wall * MS))
    return replace(shown, run=replace(shown.run, causes=Causes(timeline=tuple(spans))))


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


# -------------------------------------------------------------------------------------------------------------- trials
def comparison(speedup=1.5, spread=0.03, num_pairs=8, baseline_ms=100.0, decision="faster"):
    """Return a Comparison of equal pairs."""
    pair = Pair(baseline_ms, baseline_ms / speedup)
    return Comparison(
        pairs=(pair,) * num_pairs,
        speedup=speedup,
        low=speedup * (1 - spread),
        high=speedup * (1 + spread),
        decision=decision,
        looks=2,
        alpha=0.001,
    )


def trial(
    fix="loader-workers", verdict=Verdict.KEPT, equivalence=Equivalence.BITWISE, *, settings=None, number=1, **changes
):
    """Return a Trial; `changes` are further fields of it."""
    selection = Selection(fix, settings or {})
    whole = Trial(
        number=number,
        candidate=Candidate(selection=selection, equivalence=equivalence, ceiling=2.6, reasons=("IN001",)),
        verdict=verdict,
        comparison=comparison() if verdict is Verdict.KEPT else None,
        hits={"torch.utils.data:DataLoader.__init__": 2},
        wall_s=6.5,
    )
    return replace(whole, **changes)


def equality(*checks, claimed=Equivalence.BITWISE, equal=True, **changes):
    """Return an Equality over 64 steps."""
    return replace(Equality(claimed=claimed, equal=equal, checks=checks, num_steps=64), **changes)


def recipe(*trials, speedup=2.4, script="train.py"):
    """Return the Recipe of kept trials."""
    fixes = tuple(
        Kept(
            selection=each.candidate.selection,
            equivalence=each.candidate.equivalence,
            speedup=each.comparison.speedup,
            low=each.comparison.low,
            high=each.comparison.high,
        )
        for each in trials
    )
    proof = Proof(
        date="2026-01-02T03:04:05Z",
        flatout="0.1.0",
        python="3.11.7",
        torch="2.13.0",
        device="cpu",
        num_cpus=2,
        script_digest="0123456789abcdef",
        speedup=speedup,
        low=speedup * 0.97,
        high=speedup * 1.03,
        num_pairs=12,
        baseline_ms=100.0,
        samples={"loader": 1442},
    )
    return Recipe(script=script, fixes=fixes, proof=proof)


def kept_trials():
    """Return three fixes that were kept, one of each class that is tried by default."""
    return (
        trial("loader-workers", settings={"workers": 2}, comparison=comparison(1.44), equality=equality()),
        trial(
            "compile",
            equivalence=Equivalence.ROUNDING,
            number=4,
            comparison=comparison(1.12, baseline_ms=69.4),
            equality=equality(Check(name="gradients", passed=True, value=1e-7, limit=1e-5)),
            warmup_s=41.0,
        ),
        trial("bf16-autocast", equivalence=Equivalence.PRECISION, number=5, comparison=comparison(1.5, num_pairs=16)),
    )


def dropped_trials():
    """Return a trial for every way in which one is not kept."""
    differs = equality(
        Check(name="loss", passed=True),
        Check(name="sample order", passed=False, value=12.0, limit=0.0, detail="epoch 1, batch 3"),
        equal=False,
        reason="sample order differs: 12 samples of batch 3 in epoch 1 are others",
    )
    slow = comparison(0.81, decision="slower")
    flat = comparison(1.004, spread=0.01, decision="not faster", num_pairs=16)
    open_ = comparison(1.04, spread=0.08, decision="undecided", num_pairs=32)
    return (
        trial("threads", Verdict.NOT_FASTER, settings={"torch": 1}, number=2, comparison=flat),
        trial("channels-last", Verdict.SLOWER, Equivalence.ROUNDING, number=3, comparison=slow),
        trial("cached-input", Verdict.RESULTS_DIFFER, number=6, comparison=comparison(1.9), equality=differs),
        trial("gc-control", Verdict.NOT_APPLIED, number=7, reason="none of its places was passed", hits={}),
        trial("merge-batches", Verdict.OUT_OF_MEMORY, number=8, reason="RuntimeError: can't allocate 8 GiB"),
        trial("fused-optimizer", Verdict.CRASHED, number=9, reason="the interpreter ended with signal 11"),
        trial("pinned-copy", Verdict.TIMED_OUT, number=10, reason="no step within 60 s"),
        trial("denormals-off", Verdict.UNDECIDED, number=11, comparison=open_),
    )


def tuned():
    """Return the report of a tune that kept three fixes and refused others for every reason there is."""
    kept = kept_trials()
    trials = tuple(sorted((*kept, *dropped_trials()), key=lambda each: each.number))
    return replace(ordinary(), trials=trials, recipe=recipe(*kept), confirmation=comparison(2.4, num_pairs=12))


def tuned_in_vain():
    """Return the report of a tune that kept nothing."""
    return replace(ordinary(), trials=dropped_trials())


def hostile_tune():
    """Return a tune in which every text that a script or a fix controls tries to take over the terminal."""
    bad = trial(
        HOSTILE,
        Verdict.RESULTS_DIFFER,
        settings={HOSTILE: HOSTILE},
        reason=HOSTILE,
        equality=equality(
            Check(name=HOSTILE, passed=False, detail=HOSTILE, value=float("nan"), limit=float("inf")),
            equal=False,
            reason=HOSTILE,
        ),
    )
    odd = Comparison(pairs=(Pair(1.0, 0.5),), speedup=2.0, low=0.0, high=float("inf"), decision=HOSTILE)
    kept = trial("x" * 200, settings={HOSTILE: "y" * 200}, number=2, comparison=odd, warmup_s=1e12)
    worse = trial(HOSTILE, Verdict.CRASHED, number=3, reason=HOSTILE * 9, warmup_s=float("nan"))
    return replace(hostile(), trials=(bad, kept, worse), recipe=recipe(kept, script=HOSTILE), confirmation=odd)
