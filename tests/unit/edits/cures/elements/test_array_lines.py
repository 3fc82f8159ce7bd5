"""The lines that make arrays: one question for all that is read, and names that nothing has."""

from tests.unit.edits.cures.elements.running import edited_elements, is_edited_alike

from flatout.edits.cures.elements import array_lines

ALL = """
numbers_of_labels = 3
def f(order, labels, table):
    hits = torch.zeros(4)
    for j in order:
        if labels[j] == 1:  # <<
            print(table[j])
    for k in range(3):
        hits[k] = 1.0
    return hits
print(f(torch.tensor([2, 0]), torch.tensor([1, 0, 1]), [1, 2, 3]).tolist())
"""


def test_one_question_for_what_is_read_together(tmp_path):
    after, left = edited_elements(tmp_path, ALL)
    assert left == ""
    assert (
        """\
    numbers_of_order = order
    numbers_of_labels_2 = labels
    if type(table) in (torch.Tensor, list) and all(
        type(each) is torch.Tensor and each.layout is torch.strided and each.device.type == "cpu"
        and each.dtype is torch.int64 and each.dim() == 1
        for each in (numbers_of_order, numbers_of_labels_2)
    ):  # then numbers mean the same as elements, and arrays are the same memory
        numbers_of_order = numbers_of_order.numpy()
        numbers_of_labels_2 = numbers_of_labels_2.numpy()
    for j in numbers_of_order:
        if numbers_of_labels_2[j] == 1:
"""
        in after
    )
    assert is_edited_alike(tmp_path, ALL)
    assert "torch.Tensor" in array_lines._lines("torch", {"a": "b"}, [], [])[2]


def test_there_is_no_place_for_lines(tmp_path):
    for text in ("if a: return [int(a[i]) for i in range(3)]", "a.add_(1); k = [int(a[i]) for i in range(3)]"):
        after, left = edited_elements(tmp_path, f"def f(a):\n    {text}  # <<\n")
        assert (after, left) == ("", "unplaced")
