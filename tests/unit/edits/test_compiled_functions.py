"""`@flatout.compiled` written on functions, next to their `def`."""

from tests.unit.edits.scripts import written

TRAIN = """\
import numpy as np
import torch
import data

def blur(image):
    for y in range(3):
        image[y] = 0
    return image

class Photos:
    @staticmethod
    def edges(image):
        return image
"""


def test_functions_get_the_decorator_and_their_file_the_import(tmp_path):
    names = "train.py:blur, train.py:Photos.edges, data.py:f, data.py:gone"
    (texts, (outcome,)) = written(
        tmp_path, {"compiled-python": {"functions": names}}, train=TRAIN, data="# no imports\ndef f():\n    pass\n"
    )
    texts = {name: code.decode() for name, code in texts.items()}
    assert "@flatout.compiled\ndef blur(image):" in texts["train"]
    assert "    @staticmethod\n    @flatout.compiled\n    def edges(image):" in texts["train"]
    assert texts["train"].count("import flatout\n") == 1
    assert "@flatout.compiled\ndef f():" in texts["data"] and "import flatout\n" in texts["data"]
    assert (outcome.changed, outcome.there) == (3, 0)
    assert outcome.left == ("there is no function gone in data.py any more",)


def test_what_is_there_already_is_left_as_it_is(tmp_path):
    text = TRAIN.replace("def blur", "@flatout.compiled\ndef blur").replace(
        "import torch\n", "import flatout\nimport torch\n"
    )
    texts, (outcome,) = written(tmp_path, {"compiled-python": {"functions": "train.py:blur"}}, train=text)
    assert texts["train"].decode() == text
    assert (outcome.changed, outcome.there) == (0, 1)
