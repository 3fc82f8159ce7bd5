"""What may change the weights of a model, and what a `forward` keeps from call to call."""

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.weight_changes import changes_weights, keeps_state

HEAD = "def clamp(net):\n    for p in net.parameters():\n        p.clamp_(-1, 1)\ndef show(net):\n    print(net)\n"


def changing(folder, line):
    project = project_of(folder, train=f"{HEAD}{line}\n")
    return changes_weights(project, project.script.tree.body[2:])


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("optimizer.step()", "optimizer.step()"),
        ("net.eval()", "net.eval()"),
        ("net.load_state_dict(s)", "net.load_state_dict()"),
        ("w.data -= g", "w.data"),
        ("w.mul_(2)", "w.mul_()"),
        ("clamp(net)", "p.clamp_()"),
        ("torch.manual_seed(1)", "torch.manual_seed()"),
    ],
)
def test_what_changes_weights_or_the_mode_is_named(tmp_path, line, what):
    assert changing(tmp_path, line) == what


@pytest.mark.parametrize(
    "line", ["loss.backward()", "optimizer.zero_grad()", "clip_grad_norm_(ps, 1)", "show(net)", "a = b + net(x).mean()"]
)
def test_what_makes_gradients_or_reads_changes_none(tmp_path, line):
    assert changing(tmp_path, line) == ""


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("self.calls += 1", "self.calls"),
        ("self.seen[0] = x", "self.seen[0]"),
        ("self.seen.append(x)", "self.seen"),
        ("self.mean.mul_(0.9)", "self.mean"),
        ("y = self.layer(x)", ""),
        ("found.append(x)", ""),
    ],
)
def test_what_a_forward_keeps_in_its_module_is_named(tmp_path, line, kept):
    text = f"class Net:\n    def forward(self, x):\n        {line}\n        return x\n"
    assert keeps_state(project_of(tmp_path, train=text)) == kept
