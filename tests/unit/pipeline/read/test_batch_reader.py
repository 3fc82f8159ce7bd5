"""Rows of a data set whose transform is given many of them as one dictionary of lists."""

import pytest
import torch

from flatout.pipeline.read.batch_reader import AroundBatches, transforms_batches


class Table:
    """Does as the data sets of Hugging Face, as far as it matters here."""

    def __init__(self, transform, form="custom"):
        self._format_type, self._format_kwargs = form, {"transform": transform}
        self.odd = ""
        self.calls = 0

    def __len__(self):
        return 5

    def __getitems__(self, indices):
        if self.odd == "counts":
            self.calls += 1
        batch = {"x": [float(index) for index in indices], "name": [f"row {index}" for index in indices]}
        if self.odd == "ragged":
            batch["x"].append(9.0)
        made = self._format_kwargs["transform"](batch)
        if self.odd == "touched":
            made = {**made, "more": [1]}
        number = len(next(iter(made.values())))
        return [{name: values[place] for name, values in made.items()} for place in range(number)]


def noisy(batch):
    return {"x": [x + torch.rand(1).item() for x in batch["x"]], "name": batch["name"]}


@pytest.mark.parametrize(
    ("table", "known"),
    [(Table(noisy), True), (Table(noisy, "torch"), False), (Table(None), False), (object(), False)],
)
def test_only_a_function_of_the_scripts_own_is_one(table, known):
    assert transforms_batches(table) is known


def test_rows_are_read_without_the_transform_and_finished_with_it():
    table = Table(noisy)
    reader = AroundBatches(table)
    state = torch.get_rng_state()
    entries = [reader.read(table, index) for index in (3, 1)]
    assert entries[0] == ({"x": 3.0, "name": "row 3"}, None)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    made = reader.finish_many(table, entries)
    torch.manual_seed(1)
    assert made == table.__getitems__([3, 1])
    torch.manual_seed(1)
    alone = reader.finish(table, entries[0])
    torch.manual_seed(1)
    assert alone == table.__getitems__([3])[0]
    assert reader.left_out(table) is noisy


@pytest.mark.parametrize(("odd", "reason"), [("touched", "come out untouched"), ("ragged", "one value a column")])
def test_what_is_not_one_row_is_refused(odd, reason):
    table = Table(noisy)
    table.odd = odd
    with pytest.raises(ValueError, match=reason):
        AroundBatches(table).read(table, 0)


@pytest.mark.parametrize(("odd", "steady"), [("", True), ("counts", False)])
def test_reading_that_changes_something_is_not_steady(odd, steady):
    table = Table(noisy)
    table.odd = odd
    assert AroundBatches(table).steady(table, 0) is steady
