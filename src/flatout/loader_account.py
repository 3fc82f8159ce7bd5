"""What became of a loader: how many of its batches came from memory or workers, and why the others did not."""

from dataclasses import dataclass, replace

__all__ = ["FLEETING", "IN_A_THREAD", "LoaderAccount", "changing"]

FLEETING = "its data set is made anew for each pass, so nothing kept of it would serve"
IN_A_THREAD = "it is read in another thread, while the main one may draw random numbers"
_FILLING = "kept in the first pass, served from the second on"
_NEVER_WHOLE = "no pass has delivered all of its samples yet"


def changing(dataset: str, what: str) -> str:
    """Return in words that `what` of a data set is another one in each pass."""
    return f"{dataset} changes from pass to pass: {what}"


@dataclass(frozen=True)
class LoaderAccount:
    """What became of the loaders over one data set that one line of the script walks.

    Attributes:
        dataset: the name of the data set's class.
        place: the line that walked it first, as "file:line"; empty where that is not known.
        passes: how often it was walked.
        batches: that came from memory.
        samples: that came from memory one by one, and were collated by the script's own function.
        made: batches of random samples that workers made.
        asked: batches that could have come from workers.
        reason: why its own iterator makes batches now; empty where it does not.
        changes: at the beginning of how many passes its data set was no longer what was kept.
        changed: what it was that had changed last.
        anew: batches are made of what lies in memory now, so that changes between passes are no reason to stand back.
        datasets: how many data sets of that class there were, one after the other.
    """

    dataset: str
    place: str = ""
    passes: int = 0
    batches: int = 0
    samples: int = 0
    made: int = 0
    asked: int = 0
    reason: str = ""
    datasets: int = 1
    changes: int = 0
    changed: str = ""
    anew: bool = False

    @property
    def stands_back(self) -> str:
        """Return why the loader is served nothing from the second pass on, an empty string where it is."""
        if self.reason or self.anew or not self.changes or self.changes < self.passes - 1:
            return self.reason
        return changing(self.dataset, self.changed)

    def with_more(self, other: "LoaderAccount") -> "LoaderAccount":
        """Return both in one; what is said is what `other` says."""
        return replace(
            other,
            passes=self.passes + other.passes,
            batches=self.batches + other.batches,
            samples=self.samples + other.samples,
            made=self.made + other.made,
            asked=self.asked + other.asked,
            datasets=self.datasets + other.datasets,
            changes=self.changes + other.changes,
            changed=other.changed or self.changed,
        )

    def after(self, other: "LoaderAccount") -> "LoaderAccount":
        """Return both in one, of two processes that trained one after the other, as those of several folds do."""
        return replace(self.with_more(other), reason=other.reason or self.reason)

    def beside(self, other: "LoaderAccount") -> "LoaderAccount":
        """Return both in one, of two processes that walk the same line side by side, as ranks do."""
        both = self.with_more(other)
        return replace(
            both,
            passes=max(self.passes, other.passes),
            datasets=max(self.datasets, other.datasets),
            changes=max(self.changes, other.changes),
            reason=other.reason or self.reason,
        )

    def __str__(self) -> str:
        """Return what became of it in one line."""
        where = f"{self.dataset} at {self.place}" if self.place else self.dataset
        passes = f"{self.passes:,} pass{'es' if self.passes != 1 else ''}"
        told = f"{self.batches:,} batches from memory"
        if self.samples and not self.batches:
            told = f"{self.samples:,} samples from memory"
        if self.asked:
            told = f"{self.made:,} of {self.asked:,} batches from workers"
        why = self.reason
        if not (why or self.batches or self.samples or self.asked):
            why = _FILLING if self.passes == 1 else FLEETING if self.datasets > 1 else _NEVER_WHOLE
        return f"{where}, {passes}: {told}{f': {why}' if why else ''}"
