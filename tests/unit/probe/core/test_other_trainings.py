"""A script that trains at several places does not tell its length at the first of them."""

import pytest

from flatout.schema.run import Planned

TRAINS = """
class Loss:
    def backward(self):
        step()

def once(batches):
    for batch in batches:
        Loss().backward()

def fit(epochs, batches=loader):
    for epoch in range(epochs):
        once(batches)

def check():
    for batch in loader:
        pass
"""
SCRIPTS = {
    "one training": ("fit(3)", Planned(passes=3)),
    "with checks": ("check()\nfit(3)\ncheck()", Planned(passes=3)),
    "in a loop": ("for fold in range(4):\n    fit(3)\n    check()", Planned(passes=12)),
    "a warm-up before": ("fit(3)\nfit(14)", Planned()),
    "a warm-up of its own": ("for epoch in range(3):\n    once(loader)\nfit(14)", Planned()),
    "a search before": (
        "def search():\n    for batch in loader:\n        Loss().backward()\nsearch()\nfit(15)",
        Planned(),
    ),
    "loops in a row": (
        "for epoch in range(3):\n    for batch in loader:\n        Loss().backward()\n"
        "for epoch in range(9):\n    for batch in loader:\n        Loss().backward()",
        Planned(),
    ),
    "two passes of an epoch": (
        "for epoch in range(3):\n    for batch in loader:\n        Loss().backward()\n"
        "    for batch in others:\n        Loss().backward()",
        Planned(),
    ),
    "several losses of a step": (
        "for epoch in range(3):\n    for batch in loader:\n        for again in range(2):\n            pass\n"
        "        Loss().backward()",
        Planned(passes=3),
    ),
    "handed to map": ("list(map(fit, [3, 5]))", Planned()),
    "handed by name": ("import functools\nfunctools.partial(fit, epochs=3)()", Planned()),
    "in a comprehension": ("found = [fit(rate) for rate in (3, 5)]", Planned()),
}


@pytest.mark.parametrize("style", SCRIPTS)
def test_a_length_is_told_where_all_of_the_training_is_seen(planned, style):
    script, expected = SCRIPTS[style]
    assert planned(TRAINS + script, others=[1]) == expected
