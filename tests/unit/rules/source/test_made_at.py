"""The line that makes what a line of `forward` calls is found in the class around it."""

from flatout.rules.source.made_at import made_at
from flatout.schema.run import Frame

MODEL = """\
class Words(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.table = nn.Embedding(size, 64)
        self.head = nn.Linear(64, 2)

    def forward(self, rows):
        return self.head(self.table(rows).mean(1))


def loose(table, rows):
    return table(rows)
"""


def test_the_assignment_of_the_attribute_is_named(tmp_path):
    file = tmp_path / "words.py"
    file.write_text(MODEL)
    assert made_at(Frame(str(file), 8, "Words.forward"), "Embedding") == Frame(str(file), 4, "Words.__init__")
    assert made_at(Frame(str(file), 8, "Words.forward"), "Conv2d") is None
    assert made_at(Frame(str(file), 12, "loose"), "Embedding") is None
    assert made_at(Frame(str(tmp_path / "gone.py"), 8, "Words.forward"), "Embedding") is None


def test_two_tables_on_one_line_are_none(tmp_path):
    file = tmp_path / "words.py"
    file.write_text(MODEL.replace("self.head = nn.Linear(64, 2)", "self.head = nn.EmbeddingBag(64, 2)"))
    assert made_at(Frame(str(file), 8, "Words.forward"), "Embedding") is None
