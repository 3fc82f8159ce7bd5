"""What a whole training takes, part by part, as it is and under a recipe."""

from dataclasses import dataclass, replace

__all__ = ["TrainingTimes", "WholeTraining"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTimes:
    """The parts of a training, in seconds."""

    startup_s: float = 0.0  # from the start of the process on, what is slow once: imports, workers, compilation
    first_epoch_s: float = 0.0  # the steps of the first epoch
    later_epoch_s: float = 0.0  # those of each later one
    between_s: float = 0.0  # after each epoch: validation, checkpoints, gaps

    def whole_s(self, epochs: int) -> float:
        """Return what a training of so many epochs takes."""
        later = max(0, epochs - 1)
        return self.startup_s + self.first_epoch_s + later * self.later_epoch_s + epochs * self.between_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeTraining:
    """A training as it is and under a recipe."""

    epochs: int = 0  # that the script's loops ask for; 0: they do not tell
    steps: int = 0  # of an epoch
    plain: TrainingTimes = TrainingTimes()
    tuned: TrainingTimes = TrainingTimes()
    first_known: bool = True  # the first epoch was timed; where not, it is taken to be no faster
    arguments: str = ""  # fingerprint of the script's arguments
    other_arguments: str = ""  # of those that do not say how long it trains

    def asked_with(self, arguments: str, other_arguments: str) -> "WholeTraining | None":
        """Return what is known of a training with other arguments: not its length, where they differ in that; or None.

        A recipe that does not tell its arguments holds for all.
        """
        if arguments == self.arguments or not self.arguments:
            return self
        return replace(self, epochs=0) if other_arguments == self.other_arguments else None

    def speedup(self, epochs: int) -> float:
        """Return how much faster a training of so many epochs is under the recipe."""
        tuned_s = self.tuned.whole_s(epochs)
        return self.plain.whole_s(epochs) / tuned_s if tuned_s > 0 else 1.0
