"""Reasons for which a fix cannot act on a recorded script, as several fixes give them."""

from flatout.schema.run import LoaderFacts, Run

__all__ = ["drawn", "no_loader", "off_cuda", "training_loaders"]


def no_loader(run: Run) -> str:
    """Return that the training has no DataLoader, or that the recording was ended before that was written down."""
    if run.end.reason == "killed":
        return "which loaders the training has is not known: the recording was ended before it had told"
    return "no DataLoader gives the training its batches"


def off_cuda(run: Run) -> str:
    """Return that there is no CUDA device, an empty string where there is one."""
    kind = run.environment.device_kind
    where = "the CPU" if kind == "cpu" else kind
    return "" if kind == "cuda" else f"it needs a CUDA device, and this training runs on {where}"


def training_loaders(run: Run) -> list[LoaderFacts]:
    """Return the loaders that give the training its batches."""
    return [loader for loader in run.loaders if loader.is_training]


def drawn(loader: LoaderFacts) -> str:
    """Return that samples of the loader are drawn at random, and from what; an empty string where none was seen to."""
    prefix = loader.prefix
    if prefix is None or not prefix.checked or prefix.deterministic:
        return ""
    at = prefix.first_random
    place = f"{at.file.replace(chr(92), '/').rpartition('/')[2]}:{at.line}" if at is not None else ""
    where = ", ".join(filter(None, [loader.name, place]))
    otherwise = "drawn at random" if at is not None else "other ones each time"
    what = f"drawn from {prefix.drawn_from}" if prefix.drawn_from else otherwise
    return f"samples are {what}{f' ({where})' if where else ''}"
