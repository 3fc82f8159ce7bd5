"""Edits of the source that are wrong, as a careless change would be: each claims to leave results equal.

Each is a replacement in one script of `honest/`, given as a diff in the way of `flatout tune --edit`.
"""

from pathlib import Path
from typing import NamedTuple

from flatout.edits.diff import unified_diff
from flatout.edits.given_diff import given_edit
from flatout.schema.trial import Equivalence, Selection

BITWISE, ROUNDING, PRECISION = Equivalence.BITWISE, Equivalence.ROUNDING, Equivalence.PRECISION
HONEST = Path(__file__).resolve().parent.parent / "honest"


class WrongEdit(NamedTuple):
    """A wrong edit, what it claims, and a word that the reason must hold."""

    fix: str  # its name
    claimed: Equivalence
    script: str
    named: str
    old: str
    new: str

    @property
    def selection(self) -> Selection:
        """The edit as a candidate, made from a diff."""
        file = HONEST / f"{self.script}.py"
        before = file.read_bytes()
        after = before.replace(self.old.encode(), self.new.encode())
        diff = unified_diff(before, after, file.name).decode()
        return given_edit(diff, f"{self.fix}.diff", [HONEST]).selection


EDITS = [
    WrongEdit(name, claimed, script, named, old, new)
    for name, claims, script, named, old, new in (
        (
            "detaches-what-the-generator-made",
            (BITWISE, ROUNDING, PRECISION),
            "gan",
            "gradient",
            "loss_g = bce(D(fake)",
            "loss_g = bce(D(fake.detach())",
        ),
        (
            "detaches-the-features-of-one-head",
            (ROUNDING, PRECISION),
            "multi_task",
            "gradient",
            "self.amount(h)",
            "self.amount(h.detach())",
        ),
        (
            "averages-weights-a-little-faster",
            (ROUNDING, PRECISION),
            "ema",
            "",
            "q.lerp_(p, 0.01)",
            "torch._foreach_lerp_([q], [p], 0.012)",
        ),
        (
            "averages-weights-in-another-form",
            (BITWISE,),
            "ema",
            "",
            "q.lerp_(p, 0.01)",
            "q.mul_(0.99).add_(p, alpha=0.01)",
        ),
        (
            "divides-by-one-too-many",
            (ROUNDING, PRECISION),
            "policy_gradient",
            "loss",
            "advantage.pow(2).mean()",
            "advantage.pow(2).sum() / (len(advantage) + 1)",
        ),
        (
            "trains-one-table-of-two",
            (ROUNDING, PRECISION),
            "sparse_embedding",
            "gradient",
            "self.u(u) * self.i(i)",
            "self.u(u) * self.i(i).detach()",
        ),
        (
            "pads-with-a-token",
            (BITWISE, ROUNDING),
            "lstm",
            "values",
            "pad_sequence([t for t, _ in batch], batch_first=True)",
            "pad_sequence([t for t, _ in batch], batch_first=True, padding_value=1)",
        ),
        (
            "computes-the-unlabelled-part-without-a-graph",
            (ROUNDING, PRECISION),
            "two_loaders",
            "",
            "        p = model(u).softmax(1)\n",
            "        with torch.no_grad():\n            p = model(u).softmax(1)\n",
        ),
        (
            "scales-micro-batches-otherwise",
            (ROUNDING, PRECISION),
            "accumulation",
            "loss",
            "/ EVERY\n",
            "/ (EVERY + 0.02)\n",
        ),
        (
            "leaves-the-backbone-in-training-mode",
            (BITWISE, ROUNDING),
            "frozen_backbone",
            "values",
            "backbone.eval()\n",
            "",
        ),
    )
    for claimed in claims
]
