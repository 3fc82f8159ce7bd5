"""What makes two calls of a module calls of one kind."""

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from flatout.ranks.call_kinds import ResultHistory, kind_of, known_kind
from flatout.ranks.proof import NotTried
from flatout.ranks.whole_call import Call


class Staged(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.stage = nn.Linear(2, 2), 0


def kind(module, *args, **kwargs):
    return kind_of(Call(module, *tree_flatten((args, kwargs))), list(module.modules()))


def test_calls_with_other_rows_are_of_one_kind():
    module, known = Staged(), []
    known.append(kind(module, torch.ones(4, 2)))
    assert known_kind(known, kind(module, torch.ones(3, 2))) is known[0]


def test_a_mode_a_type_a_number_a_word_and_a_setting_make_another_kind():
    module, x = Staged(), torch.ones(4, 2)
    known = [kind(module, x, 1, 0.5, "mean")]
    assert known_kind(known, kind(module, x, 1, 0.25, "mean")) is known[0]
    assert known_kind(known, kind(module, x, 2, 0.5, "mean")) is None
    assert known_kind(known, kind(module, x, 1, 0.5, "sum")) is None
    assert known_kind(known, kind(module, x.double(), 1, 0.5, "mean")) is None
    assert known_kind(known, kind(module, x, 1, 0.5, how="mean")) is None
    with torch.no_grad():
        assert known_kind(known, kind(module, x, 1, 0.5, "mean")) is None
    module.stage = 1
    assert known_kind(known, kind(module, x, 1, 0.5, "mean")) is None
    module.stage = 0
    assert known_kind(known, kind(module.eval(), x, 1, 0.5, "mean")) is None


def test_a_call_with_other_values_of_what_its_code_names_is_proven_with_longer_and_longer_pauses():
    one = kind(Staged(), torch.ones(4, 2))
    one.named.add((0.0,))
    assert not one.meets((0.0,))
    asked = [one.meets((float(value),)) for value in range(1, 10)]
    assert asked == [True, True, False, True, False, False, False, True, False]
    assert one.skipped
    assert not one.meets((3.0,))


def test_calls_are_proven_again_often_at_first_and_seldom_later():
    one = kind(Staged(), torch.ones(4, 2))
    due = []
    for number in range(2, 5000):
        one.calls = number
        due += [number] if one.is_due else []
    assert due == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096]
    one.form = NotTried("its results are not finite")
    one.calls = 16
    assert one.is_due
    one.calls = 32
    assert not one.is_due


def test_a_call_that_returns_other_whole_numbers_is_proven_with_longer_and_longer_pauses():
    one = ResultHistory()
    assert not one.gives((b"0",), fresh=True)  # of the call that was proven
    assert not one.gives((), fresh=False) and not one.gives((b"0",), fresh=False)
    asked = [one.gives((b"%d" % number,), fresh=False) for number in range(1, 6)]
    assert asked == [True, True, False, True, False]


def test_calls_whose_results_have_another_form_are_made_twice_for_a_while():
    one = ResultHistory()
    assert [one.misfit() for _ in range(33)] == [False] * 32 + [True]
