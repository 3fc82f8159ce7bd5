"""Scripts composed at random: where state lives x how it is changed x by whom x when x loader x workers.

Each is the text of a small training script (`--show NAME` prints it); another seed gives others. A third of them changes
something that the samples do not depend on.
"""

import linecache
import random
import textwrap
from itertools import count

from composed_arrays import ARRAYS
from composed_containers import CONTAINERS
from composed_counting import COUNTS
from composed_loops import LOADERS, UNRELATED, WHENS, Plan, body
from composed_outside import OUTSIDE
from composed_places import PLACES
from script_list import Script

GROUPS = (
    ("composed: containers", CONTAINERS),
    ("composed: arrays", ARRAYS),
    ("composed: places", PLACES + OUTSIDE),
    ("composed: reading counts", COUNTS),
)
NUMBERS = count()
IMPORTS = """
import argparse, array, collections, collections.abc, contextvars, ctypes, dataclasses, enum, functools, io, os, pathlib
import random, sys, threading, types, weakref

import numpy as np
import torch
import torch.multiprocessing as mp
from recording import streams
from script_list import decode, features
from torch.utils.data import (
    BatchSampler, ConcatDataset, DataLoader, Dataset, RandomSampler, Sampler, Subset, WeightedRandomSampler, default_collate,
)
"""


def composed(seed, num):
    """Return as many scripts that change something as a seed is asked for, and a third as many that do not."""
    rng = random.Random(seed)
    ways = [(kind, state, how) for kind, states in GROUPS for state in states for how in state.changes]
    chosen = [way for _ in range(num // len(ways) + 1) for way in rng.sample(ways, len(ways))][:num]
    plans = [(kind, plan(rng, state, how)) for kind, state, how in chosen]
    known = [state for kind, states in GROUPS[:3] for state in states if not state.shared]
    still = [plan(rng, rng.choice(known), rng.choice(list(UNRELATED)), still=True) for _ in range(num // 3)]
    plans += [("composed: nothing changes", made) for made in still]
    rng.shuffle(plans)
    scripts = [as_script(kind, made) for kind, made in plans]
    return list({script.name: script for script in scripts}.values())


def plan(rng, state, how, still=False):
    """Choose the rest for one way of changing one state, so that plain gives the same each time."""
    while True:
        made = Plan(
            state=state,
            how=how,
            when=rng.choice(list(WHENS)),
            who=rng.choice(("inline", "inline", "function", "method", "thread", "callback")),
            loader=rng.choice(list(LOADERS)),
            workers=rng.choice((0, 0, 0, 0, 2)),
            rows=rng.choice(("5 rows", "5 rows", "all rows", "1 row")),
            scaled=rng.random() < 0.4,
            still=still,
        )
        if made.sound():
            return made


def as_script(kind, made):
    """Return a script of a plan; its text is compiled where it runs."""
    text = source(made)
    name = made.name()

    def function(wrap, rec):
        file = f"composed_{name}.py"
        linecache.cache[file] = len(text), None, text.splitlines(True), file
        module = {"__name__": f"composed_{next(NUMBERS)}", "__file__": file}
        exec(compile(text, file, "exec"), module)
        module["main"](wrap, rec)

    changes = not made.still or made.state.also != "0"  # what is looked at in the end changes by being read
    return Script(name, kind, function, changes, made.state.names or named(made.state.init), text)


def named(init):
    """Return the attributes that lines set."""
    return tuple(part.split("=")[0].strip() for part in init.replace("\n", " ").split("self.")[1:] if "=" in part)


def source(made):
    """Return the text of a script."""
    state = made.state
    early, late = ("", state.top.removeprefix("#late")) if state.top.startswith("#late") else (state.top, "")
    row = "self.rows[index]" if state.length == "len(self.rows)" else "self.rows[index % 256]"
    item = f"{row} * (1 + {state.read} / 16)" if made.scaled else row
    lines = [
        f'"""{made.told()}"""',
        IMPORTS,
        made.rows_line(),
        early,
        "",
        "class Samples(Dataset):",
        "    def __init__(self):",
        "        self.rows = features()",
        *indented(state.init, 2),
        "",
        "    def __len__(self):",
        f"        return {state.length}",
        "",
        "    def __getitem__(self, index):",
        "        decode()",
        f"        return {item}, {'index' if made.scaled else state.read}",
        "",
        *indented(state.methods, 1),
        *indented(made.method(), 1),
        late,
        LOADERS[made.loader].top,
        made.functions(),
        "",
        "def main(wrap, rec):",
        *indented(body(made), 1),
    ]
    return "\n".join(lines) + "\n"


def indented(text, depth):
    return textwrap.indent(text.strip("\n"), "    " * depth).splitlines()
