"""Repairs of planted scripts that are subtly wrong: each is the right one but for one slip that a person may make."""

from typing import NamedTuple

__all__ = ["WRONG_REPAIRS", "WrongRepair"]


class WrongRepair(NamedTuple):
    """A slip in the repair of one script: what stands there in the twin, and what a person wrote instead."""

    name: str
    script: str
    old: str
    new: str


WRONG_REPAIRS = (
    WrongRepair(
        "decays before it clips",
        "manual_momentum",
        """            torch._foreach_mul_(grads, list(scale.unbind()))
            torch._foreach_add_(grads, params, alpha=decay)
""",
        """            torch._foreach_add_(grads, params, alpha=decay)
            torch._foreach_mul_(grads, list(scale.unbind()))
""",
    ),
    WrongRepair(
        "one optimizer with torch's own betas",
        "sprite_gan",
        "opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.99), fused=True)",
        "opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)",
    ),
    WrongRepair(
        "draws the negative before the positive",
        "triplet_faces",
        "p, n = random.choice(positives), random.choice(negatives)",
        "n, p = random.choice(negatives), random.choice(positives)",
    ),
    WrongRepair(
        "distances the other way round",
        "relative_attention",
        "(position[:, None] - position[None])",
        "(position[None] - position[:, None])",
    ),
    WrongRepair(
        "pads with minus one",
        "speech_padding",
        "for x, _ in samples], batch_first=True)",
        "for x, _ in samples], batch_first=True, padding_value=-1.0)",
    ),
    WrongRepair(
        "the last bucket joined to the one before",
        "gated_tabular",
        "self.edges, right=True)",
        "self.edges, right=True).clamp(max=len(EDGES) - 1)",
    ),
    WrongRepair("leaves out one neighbour", "paper_citations", "x[neighbours].mean(1)", "x[neighbours[:, 1:]].mean(1)"),
    WrongRepair("sums squares in place of their mean", "sparse_adagrad", "g.pow(2).mean(1)", "g.pow(2).sum(1)"),
    WrongRepair(
        "counts the step after it was used",
        "wine_experts",
        """        self.steps += 1
        temperature = (3.0 * 0.999**self.steps).clamp(min=0.5)
""",
        """        temperature = (3.0 * 0.999**self.steps).clamp(min=0.5)
        self.steps += 1
""",
    ),
    WrongRepair(
        "rows of one half in another order",
        "weather_windows",
        "np.stack([p for p, _ in items])",
        "np.stack([p for p, _ in reversed(items)])",
    ),
)
