"""Arguments behind `**`: written where the source tells what it holds, left alone where it does not."""

import pytest
from tests.unit.edits.scripts import one

METHOD = """\
import inspect
import torch
from torch import nn


class Net(nn.Module):
    def configure_optimizers(self, rate, device):
        groups = [{{"params": [p for p in self.parameters() if p.dim() > 1]}}, {{"params": []}}]
        use_fused = "fused" in inspect.signature(torch.optim.AdamW).parameters and device == "cuda"
        {held}
        optimizer = torch.optim.AdamW(groups, lr=rate, **extra)
        return optimizer
"""
FUSED = {"implementation": "fused"}

WRITTEN = [
    ("extra = dict(fused=True) if use_fused else dict()", '**{**extra, "fused": True})'),
    ('extra = {"fused": use_fused}', '**{**extra, "fused": True})'),
    ('extra = {"eps": 1e-6}', "**extra, fused=True)"),
    ('extra = {**dict(eps=1e-6), "amsgrad": True}', "**extra, fused=True)"),
    ('common = {"eps": 1e-6}\n        extra = common if use_fused else {}', None),
    ('common = {"eps": 1e-6}\n        extra = {**common}', "**extra, fused=True)"),
]


@pytest.mark.parametrize(("held", "written"), WRITTEN)
def test_an_optimizer_in_a_method_gets_its_argument_beside_what_is_unpacked(tmp_path, held, written):
    text = METHOD.format(held=held)
    after, outcome = one(tmp_path, "fused-optimizer", text, **FUSED)
    assert after == (text.replace("**extra)", written) if written else text)
    assert (outcome.changed, bool(outcome.left)) == ((1, False) if written else (0, True))
    again, outcome = one(tmp_path, "fused-optimizer", after, **FUSED)
    assert again == after
    assert outcome.changed == 0


def test_what_is_unpacked_and_asks_for_it_in_every_way_is_there(tmp_path):
    text = METHOD.format(held="extra = {'fused': True}")
    after, outcome = one(tmp_path, "fused-optimizer", text, **FUSED)
    assert (after, outcome.there, outcome.left) == (text, 1, ())


LEFT = [
    ("extra = make(device)", "**kwargs"),
    ("extra = {}\n        extra['fused'] = False", "**kwargs"),
    ("extra = {}\n        extra.update(make(device))", "**kwargs"),
    ("extra = {}\n        fill(extra)", "**kwargs"),
    ("extra = {}\n        extra |= make(device)", "**kwargs"),
    ("extra = {device: True}", "**kwargs"),
    ("extra = {}\n        for extra in make(device):\n            pass", "**kwargs"),
    ("extra = {**make(device)}", "**kwargs"),
    ("extra = {'foreach': True}", "foreach already"),
    ("extra = {'capturable': True} if use_fused else {}", "capturable"),
]


@pytest.mark.parametrize(("held", "reason"), LEFT)
def test_what_may_hold_anything_is_left_out(tmp_path, held, reason):
    text = METHOD.format(held=held)
    after, outcome = one(tmp_path, "fused-optimizer", text, **FUSED)
    assert after == text
    assert reason in " ".join(outcome.left)


def test_an_argument_of_the_function_may_hold_anything(tmp_path):
    text = METHOD.format(held="pass").replace("rate, device", "rate, device, extra")
    after, outcome = one(tmp_path, "fused-optimizer", text, **FUSED)
    assert after == text
    assert outcome.left
