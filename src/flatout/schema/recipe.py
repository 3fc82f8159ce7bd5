"""The fixes that were kept, their settings, and where they were proven: what `flatout.toml` holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flatout.schema.trial import RANKS, Equivalence, Selection
from flatout.schema.whole_training import WholeTraining

__all__ = ["SCHEMA", "Kept", "Proof", "RankProof", "Recipe"]

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One fix of a recipe: its own speed-up with interval, as it was measured on top of those before it."""

    selection: Selection
    equivalence: Equivalence
    speedup: float = 1.0
    low: float = 1.0
    high: float = 1.0
    seal: str = ""  # of an edit: shows the user whose tune has made it that it is his own


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Where and when a recipe was proven; `flatout run` warns where it is used elsewhere."""

    date: str  # ISO, UTC
    flatout: str
    python: str
    torch: str
    device: str
    num_cpus: int = 0
    script_digest: str = ""  # SHA-256 of the script's file, 16 hex digits
    world_size: int = 1
    speedup: float = 1.0  # of the whole recipe against the untouched script, in fresh processes
    low: float = 1.0
    high: float = 1.0
    num_pairs: int = 0
    baseline_ms: float = 0.0
    samples: Mapping[str, int] = field(default_factory=dict)  # data set: number of samples

    @property
    def step_s(self) -> float:
        """Return the seconds that a step took under the recipe, 0 where it is not known."""
        return self.baseline_ms / self.speedup / 1e3 if self.speedup > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProof:
    """On how many ranks of one machine a training was faster than in one process, with results as equal as stated."""

    number: int
    equivalence: Equivalence
    steps: int  # that were compared
    speedup: float = 1.0
    low: float = 1.0
    high: float = 1.0

    @property
    def efficiency(self) -> float:
        """Return the share of `number` times the speed that came."""
        return self.speedup / self.number

    @property
    def as_kept(self) -> Kept:
        """Return the same as it stands among fixes that were kept."""
        return Kept(
            selection=Selection(RANKS, {"number": self.number}),
            equivalence=self.equivalence,
            speedup=self.speedup,
            low=self.low,
            high=self.high,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What `flatout tune` hands back."""

    script: str
    fixes: tuple[Kept, ...]
    proof: Proof
    schema: int = SCHEMA
    ranks: RankProof | None = None  # the script trains on several of them; fixes are left out then
    whole: WholeTraining | None = None  # what it gives a whole training; None where the length of an epoch is not known

    @property
    def selections(self) -> tuple[Selection, ...]:
        """Return the fixes with their settings, in the order in which they are applied."""
        return tuple(kept.selection for kept in self.fixes)

    @property
    def equivalence(self) -> Equivalence:
        """Return the weakest class among the fixes: what the recipe as a whole promises."""
        classes = [kept.equivalence for kept in self.fixes] + ([self.ranks.equivalence] if self.ranks else [])
        return max(classes, key=lambda each: each.rank, default=Equivalence.BITWISE)
