"""Entry point inside the user's process: attaches the probes that the order file asks for.

Called by `inject/sitecustomize.py` right after `torch` was imported; edited files are served from the start of the
process. Nothing here may stop the script: what fails is written beside the parts, and training goes on unobserved.
"""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["attach", "protect", "protect_safetensors", "serve_edits"]


def protect(order_file: str) -> None:
    """Keep the user's files as they are, from the first moment of this process on, if the order asks for it."""
    from flatout.probe.files.guarded_files import keep_files
    from flatout.schema.codec import read_order

    order = read_order(Path(order_file))
    if order.protect_files:
        keep_files(order.folder)


def serve_edits(order_file: str) -> None:
    """Let this process run the edited text of the files that the order has one for."""
    from flatout.fixes.source.edited_loader import serve
    from flatout.fixes.source.served_files import served_here
    from flatout.schema.codec import read_order

    serve(served_here(read_order(Path(order_file)).edited))


def protect_safetensors(order_file: str) -> None:
    """Set aside what `safetensors.torch.save_file` is about to overwrite: its writer is native code."""
    from flatout.probe.core.seams import Hits, Seams
    from flatout.probe.files.guarded_files import keep_files
    from flatout.schema.codec import read_order

    order = read_order(Path(order_file))
    if not order.protect_files:
        return

    def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def save_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
            hits.count += 1
            keep_files(order.folder).before_write(filename, truncates=True)
            return original(tensors, filename, *args, **kwargs)

        return save_file

    Seams().wrap("safetensors.torch:save_file", make)


def attach(order_file: str) -> None:
    """Attach to this process as the order in `order_file` says."""
    began_s = time.perf_counter()
    try:
        from flatout.probe.recorder import start
        from flatout.schema.codec import read_order
        from flatout.schema.ranks import is_rank
        from flatout.schema.secrets import remember, remember_environment

        remember(sys.orig_argv)
        remember_environment(os.environ)
        order = read_order(Path(order_file))
        if is_rank():
            _become_rank(order)
        if order.mode == "run":
            _train(order)
        elif order.mode == "timing":
            start(order, _prepare_timing)
        elif order.mode == "verify":
            start(order, _prepare_verification)
        elif order.mode == "loader":
            _measure_loaders(order)
        else:
            start(order, began_s=began_s)
    except Exception:
        with contextlib.suppress(OSError):
            from flatout.schema.secrets import masked

            failure = Path(order_file).parent / "parts" / f"failed-{os.getpid()}.txt"
            failure.write_text(masked(traceback.format_exc()), encoding="utf-8")


def _train(order: Any) -> None:
    """Put the recipe's fixes in place; around them, where it is asked for, what tells how the training goes."""
    if order.ranks:  # the launcher, or what a rank has started: the ranks know what to do
        return
    if order.fixes or not order.live:
        from flatout.fixes.core.under_recipe import train_under

        train_under(order)
    if order.live:
        from flatout.probe.system.live_status import follow

        follow(order)


def _measure_loaders(order: Any) -> None:
    """Let the script come to its first training step, and measure its loaders in place of that."""
    from flatout.probe.benchmark.in_script import measure_loaders

    measure_loaders(order)


def _become_rank(order: Any) -> None:
    """Make this process a rank. One that cannot be one ends: it would be a whole training beside the others."""
    from flatout.schema.ranks import CANNOT_BEGIN

    try:
        from flatout.ranks.rank import train_as_rank

        train_as_rank(order)
    except Exception:
        os.write(2, f"flatout: rank {os.environ.get('RANK')} cannot begin\n{traceback.format_exc()}".encode())
        os._exit(CANNOT_BEGIN)


def _prepare_timing(recorder: Any) -> None:
    """Install the fixes of a timing, and let it follow the steps."""
    from flatout.fixes.core.apply import install_fix, install_fixes
    from flatout.fixes.trial.alternation import Alternation
    from flatout.fixes.trial.loader_alone import LoaderAlone
    from flatout.fixes.trial.rank_switching import FollowingRank, LeadingRank
    from flatout.fixes.trial.turns import Turns, WholeProcess
    from flatout.probe.recorder import StepReceiver

    order = recorder.order
    purpose = "run" if order.timing.as_trained else order.mode
    base = install_fixes(order.fixes, recorder.probes.seams, recorder.probes.modules, purpose)
    if not order.timing.arms:
        whole = (Turns if order.timing.turns else WholeProcess)(order.timing, base, recorder.write)
        recorder.receiver = StepReceiver(whole.step, whole.finish)
        return
    if order.timing.without:
        arms = [[site for site in base if site.selection in arm] for arm in order.timing.arms]
    else:
        seams, modules = recorder.probes.seams, recorder.probes.modules
        arms = [[install_fix(one, seams, modules, purpose) for one in arm] for arm in order.timing.arms]
    if order.timing.turns and os.environ.get("RANK", "0") != "0":
        recorder.receiver = StepReceiver(FollowingRank(order.timing, arms).step)
        return
    if order.timing.alone_s:
        alone = LoaderAlone(recorder.write, len(arms), order.timing.alone_s)
        alone.install(recorder.probes.seams)
        recorder.receiver = StepReceiver(alone.behind(Alternation(order.timing, base, arms, alone.write).step))
        return
    alternation = Alternation(order.timing, base, arms, recorder.write)
    leads = LeadingRank(alternation, Path(order.timing.turns)) if order.timing.turns else alternation
    recorder.receiver = StepReceiver(leads.step)


def _prepare_verification(recorder: Any) -> None:
    """Install the fixes of a verification, and let it take the training down."""
    from flatout.fixes.core.apply import install_fixes
    from flatout.fixes.trial.alternation import describe
    from flatout.probe.recorder import StepReceiver
    from flatout.probe.verify.compared_execution import Verification

    sites = install_fixes(recorder.order.fixes, recorder.probes.seams, recorder.probes.modules, recorder.order.mode)
    verification = Verification(recorder, lambda: describe(sites))
    verification.install()
    recorder.receiver = StepReceiver(verification.step, verification.finish)
