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
    "a method of the name of a function": (
        "class Net:\n    def train(self):\n        pass\n"
        "def train(net):\n    for epoch in range(3):\n        net.train()\n        once(loader)\n"
        "train(Net())\nNet().train()",
        Planned(passes=3),
    ),
    "one way or the other": (
        "def main():\n    if args.epochs:\n        fit(3)\n    else:\n        fit(5)\nmain()",
        Planned(passes=3),
    ),
    "tried, else otherwise": ("try:\n    fit(3)\nexcept ValueError:\n    fit(4)", Planned(passes=3)),
    "one way, and then again": (
        "if args.epochs:\n    fit(3)\nelse:\n    fit(5)\nfit(1)",
        Planned(),
    ),
    "of an object": (
        "class Trainer:\n    def run(self, epochs):\n        fit(epochs)\n"
        "trainer = Trainer()\ntrainer.run(3)\ntrainer.run(4)",
        Planned(),
    ),
    "handed to map": ("list(map(fit, [3, 5]))", Planned()),
    "handed by name": ("import functools\nfunctools.partial(fit, epochs=3)()", Planned()),
    "in a comprehension": ("found = [fit(rate) for rate in (3, 5)]", Planned()),
}


@pytest.mark.parametrize("style", SCRIPTS)
def test_a_length_is_told_where_all_of_the_training_is_seen(planned, style):
    script, expected = SCRIPTS[style]
    assert planned(TRAINS + script, others=[1]) == expected
