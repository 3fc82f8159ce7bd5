"""However a training saves and however it ends: what `torch.save` would have left is there, and nothing else.

Modules: flatout.fixes.checkpoint.rescuer.
"""

import pytest
from tests.unit.fixes.saving import ENDS, UNSEEN, WAYS, outcomes

pytestmark = pytest.mark.slow

FEW_WAYS = ("over an old file", "one umask after the other")
DAEMON = "as a daemon"
PARTS = 5  # several endings share one process that imports torch, 3 s of CPU, and forks a child for each
FEW_ENDS = ("by itself", "_exit with a status", "SIGTERM")


def assert_same(found):
    for way, end, arm in found:
        if arm == "plain":
            continue
        status, tree = found[way, end, "plain"]
        assert found[way, end, "ours"][0] == status, (way, end)
        assert found[way, end, "ours"][1] == tree, (way, end)


def assert_left(found):
    assert [case for case, (status, files) in found.items() if not files] == []
    assert_same(found)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.few(1)
def test_a_process_leaves_its_checkpoints_however_it_ends(part, tmp_path):
    assert_left(outcomes(tmp_path, FEW_WAYS, [end for end in ENDS if end != DAEMON][part::PARTS]))


def test_a_daemon_leaves_its_checkpoint(tmp_path):
    assert_left(outcomes(tmp_path, ("a new file",), [DAEMON]))


@pytest.mark.parametrize("part", range(4))
@pytest.mark.few(1)
def test_a_checkpoint_is_left_as_torch_leaves_it_however_it_is_saved(part, tmp_path):
    assert_same(outcomes(tmp_path, list(WAYS)[part::4], FEW_ENDS))


@pytest.mark.parametrize("end", UNSEEN)
@pytest.mark.few(1)
def test_a_process_that_dies_unseen_leaves_its_checkpoints_a_moment_later(end, tmp_path):
    ways = ("over an old file", "six files") if end == "SIGKILL from outside" else ("under a tight umask",)
    assert_same(outcomes(tmp_path, ways, [end]))


@pytest.mark.full
def test_names_that_are_not_ascii_are_written_by_the_other_process_too(tmp_path):
    ways = ("names that are not ASCII", "a folder that is not ASCII", "other options after")
    assert_same(outcomes(tmp_path, ways, ["SIGKILL from outside"]))
