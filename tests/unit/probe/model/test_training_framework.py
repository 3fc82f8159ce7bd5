"""The framework whose loop leads to a step is read from the frames."""

import sys
from dataclasses import replace

import pytest

from flatout.probe.model.training_framework import driving_framework
from flatout.rules.core.catalog import rule_of
from flatout.rules.core.example import example
from flatout.rules.core.find import examine
from flatout.schema.finding import Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes


def called_through(*modules):
    """What is found in a call that goes through functions of these modules, the outermost first."""

    def inner():
        return driving_framework(sys._getframe())

    call = inner
    for name in reversed(modules):
        scope = {"__name__": name, "following": call}
        exec("def call(): return following()", scope)
        call = scope["call"]
    return call()


@pytest.mark.parametrize(
    ("modules", "framework"),
    [
        ((), ""),
        (("lightning.pytorch.trainer.trainer", "lightning.pytorch.loops.fit_loop"), "lightning"),
        (("pytorch_lightning.loops.fit_loop", "lightning_fabric.wrappers"), "lightning"),
        (("lightning.fabric.wrappers",), "fabric"),
        (("transformers.trainer", "accelerate.data_loader"), "transformers"),
        (("accelerate.data_loader",), "accelerate"),
        (("transformers.models.bert.modeling_bert",), ""),
        (("my.transformers.trainer",), ""),
    ],
)
def test_the_outermost_loop_decides(modules, framework):
    assert called_through(*modules) == framework


@pytest.mark.parametrize(
    ("framework", "code", "said"),
    [
        ("transformers", "IN002", "dataloader_num_workers=2"),
        ("lightning", "CO003", "Trainer(detect_anomaly=False)"),
        ("accelerate", "TR002", "non_blocking=True"),
        ("", "IN002", None),
        ("fabric", "CO003", None),
    ],
)
def test_advice_names_the_frameworks_own_setting(framework, code, said):
    fault = Finding(code=code, name="x", phase=Phase.INPUT, share=0.5, max_speedup=2.0, message="Slow (n=1).")
    rule = replace(rule_of(code), check=lambda *_: fault)
    truth = example(causes=Causes(framework=framework))
    (found,) = examine(truth.run, truth.breakdown, (), [rule]).findings
    assert found.message.startswith("Slow (n=1).")
    assert (said in found.message) if said else found.message == "Slow (n=1)."
