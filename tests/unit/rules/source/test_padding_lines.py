"""Which line of the user's source pads every sample to one length."""

import textwrap
from dataclasses import replace

import pytest

from flatout.rules.core.example import example
from flatout.rules.source.padding_lines import padding_line
from flatout.schema.run import Frame, LoaderFacts


def found(tmp_path, text):
    path = tmp_path / "data.py"
    path.write_text(textwrap.dedent(text))
    loader = LoaderFacts(is_training=True, created_at=Frame(str(path), 1, "<module>"))
    place = padding_line(replace(example().run, loaders=(loader,)))
    return None if place is None else (place.line, place.function)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class D:\n def __init__(self):\n  self.x = [r + [0] * (MAX - len(r)) for r in rows]", (3, "D.__init__")),
        ("def pad(r):\n return F.pad(r, (0, 64 - len(r)))", (2, "pad")),
        ("def pad(r):\n return np.pad(r, (0, WIDTH - r.shape[0]))", (2, "pad")),
        ("x = tok(texts, max_length=64, padding='max_length')", (1, "<module>")),
        (
            "def f(rows):\n x = np.zeros((n, 80))\n for i, r in enumerate(rows):\n  x[i, :len(r)] = r\n return x",
            (2, "f"),
        ),
        (
            "class C:\n def __call__(self, rows):\n  x = torch.full((len(rows), self.width), PAD)\n"
            "  for line, r in zip(x, rows):\n   line[:len(r)] = r\n  return x",
            (3, "C.__call__"),
        ),
    ],
)
def test_a_line_that_pads_to_one_length_is_found(tmp_path, text, expected):
    assert found(tmp_path, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "def collate(b):\n n = max(len(r) for r in b)\n return [r + [0] * (n - len(r)) for r in b]",
        "def collate(b):\n return [r + [0] * (max(map(len, b)) - len(r)) for r in b]",
        "def collate(b):\n n = max(map(len, b))\n x = zeros(8, n)\n for i, r in enumerate(b):\n  x[i, :len(r)] = r",
        "def f(b):\n x = torch.zeros(8, 4)\n x[0] = 1\n return x",
        "def f(b):\n x = torch.zeros(8, 4)\n for r in b:\n  r[:3] = 1\n return x",
        "x = tok(texts, padding=True)",
        "x = [0] * (5 - n)",
        "x = (",
    ],
)
def test_what_pads_to_the_longest_of_a_batch_is_not(tmp_path, text):
    assert found(tmp_path, text) is None


def test_a_tokenizer_that_is_told_to_pad_comes_first(tmp_path):
    text = "def make(r):\n return r + [0] * (9 - len(r))\nx = tok(texts, padding='max_length')"
    assert found(tmp_path, text) == (3, "<module>")
