"""The training loops of composed scripts: loaders, moments of change, who makes it, and changes that do not matter."""

import re
from dataclasses import dataclass

from state import State


@dataclass(frozen=True)
class Loader:
    """A way to build a loader; `{more}` is where its workers go."""

    make: str
    top: str = ""
    each_epoch: bool = False
    second: str = ""  # another loader over the same data
    persistent: bool = False


ORDER = """
class Halves(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        order = torch.randperm(len(self.data)).tolist()
        yield from order[::2]
        yield from order[1::2]

    def __len__(self):
        return len(self.data)
"""
COLLATE = """
def as_dict(samples):
    inputs, labels = default_collate(samples)
    return {"inputs": inputs, "labels": labels}
"""
ALIAS = """
def pairs(samples):
    inputs, labels = default_collate(samples)
    return inputs, inputs[:, :32], labels
"""
PADDED = """
def ragged(samples):
    rows = [row[: 8 + number % 3] for number, (row, _) in enumerate(samples)]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), [label for _, label in samples]
"""
WRAPPED = """
class Wrapped(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        x, y = self.inner[index]
        return x.neg(), y
"""
CLASS = "class TrainLoader(DataLoader):\n    pass\n"
LOADERS = {
    "shuffled": Loader("DataLoader(data, batch_size=16, shuffle=True{more})"),
    "sequential": Loader("DataLoader(data, batch_size=16{more})"),
    "drop_last": Loader("DataLoader(data, batch_size=24, shuffle=True, drop_last=True{more})"),
    "own_sampler": Loader("DataLoader(data, batch_size=16, sampler=Halves(data){more})", ORDER),
    "batch_sampler": Loader("DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 16, False){more})"),
    "weighted": Loader("DataLoader(data, 16, sampler=WeightedRandomSampler([1.0] * 200 + [3.0] * 50, 250){more})"),
    "own_generator": Loader("DataLoader(data, 16, shuffle=True, generator=torch.Generator().manual_seed(5){more})"),
    "collate": Loader("DataLoader(data, batch_size=16, shuffle=True, collate_fn=as_dict{more})", COLLATE),
    "aliasing_collate": Loader("DataLoader(data, batch_size=16, shuffle=True, collate_fn=pairs{more})", ALIAS),
    "padding_collate": Loader("DataLoader(data, batch_size=16, shuffle=True, collate_fn=ragged{more})", PADDED),
    "subset": Loader("DataLoader(Subset(data, list(range(3, 253))), batch_size=16, shuffle=True{more})"),
    "concatenated": Loader("DataLoader(ConcatDataset([data, Subset(data, range(32))]), 16, shuffle=True{more})"),
    "wrapped": Loader("DataLoader(Wrapped(data), batch_size=16, shuffle=True{more})", WRAPPED),
    "persistent": Loader("DataLoader(data, 16, shuffle=True, persistent_workers=True{more})", persistent=True),
    "subclass": Loader("TrainLoader(data, batch_size=16, shuffle=True{more})", CLASS),
    "new_each_epoch": Loader("DataLoader(data, batch_size=16, shuffle=True{more})", each_epoch=True),
    "two_loaders": Loader("DataLoader(data, 16, shuffle=True{more})", second="DataLoader(data, batch_size=32{more})"),
}
# Where the lines of a change go, on which condition, with which value, and what else the loop needs.
WHENS = {
    "between_once": ("between", "if epoch == 3:", 1),
    "between_every": ("between", "if epoch:", 2),
    "between_and_back": ("between", "if epoch in (2, 4):", (1, "epoch == 2")),
    "before_the_first": ("before", "", 1),
    "after_iter": ("after_iter", "if epoch == 3:", 1),
    "after_iter_every": ("after_iter", "if epoch:", 2),
    "mid_late": ("mid", "if step == 44:", 1),
    "mid_first_pass": ("mid", "if step == 5:", 1),
    "mid_and_back": ("mid", "if step in (36, 41):", (1, "step == 36")),
    "mid_every_batch": ("mid", "if step > 20:", 2),
    "last_batch": ("mid", "if step == 48:", 1),
    "after_a_break": ("break", "if epoch == 2:", 1),
}
UNRELATED = {
    "note_on_the_data": "data.note = step",
    "counter_of_the_script": "total = epoch + step",
    "list_of_losses": "losses.append(step / 3)",
    "history_in_the_data": 'data.__dict__.setdefault("history", []).append(step)',
    "other_tensor": "weights.mul_(0.9).add_(step)",
    "allocates": "garbage = [object() for _ in range(5000)] + [torch.zeros(1000), np.ones(5000)]",
    "other_thread": "beside = threading.Thread(target=losses.append, args=(step,))\nbeside.start()\nbeside.join()",
    "reads_the_data": "seen = [data[3], len(data), vars(data).keys()]",
    "holds_the_parts": "held = list(vars(data).values())",
    "nothing": "pass",
}


@dataclass(frozen=True)
class Plan:
    """One script, as it was chosen."""

    state: State
    how: str
    when: str
    who: str
    loader: str
    workers: int
    rows: str
    scaled: bool
    still: bool

    def name(self):
        return ".".join((self.state.name, self.how, self.when, self.who, self.loader, f"w{self.workers}"))

    def told(self):
        what = "Nothing that a sample reads changes" if self.still else f"{self.state.name} changed by {self.how}"
        return f"{what}; {self.when}, {self.who}, {self.loader}, {self.rows}, {self.workers} workers."

    def sound(self):
        """Tell whether the plain loader gives the same each time, and the script can be written so."""
        where, _, value = WHENS[self.when]
        loader = LOADERS[self.loader]
        counts = self.state.read == "self.bump(index)"
        forbidden = (
            (self.when == "mid_and_back" and self.state.by_row and self.rows != "all rows"),
            (isinstance(value, tuple) and (self.still or self.how in self.state.once)),
            (loader.persistent and not self.workers),
            (self.state.arguments and "collate" in self.loader),
            (self.still and self.workers and self.state.arguments),
            (self.state.shared and self.workers and (where != "between" or loader.persistent)),
            (counts and self.workers and self.state.name == "log_file"),
            (self.who != "inline" and (counts or self.still or self.state.name == "own_methods")),
            (self.who == "thread" and self.state.name == "context_variable"),
            (self.still and (self.workers and "collate" in self.loader)),
            (self.state.length != "len(self.rows)" and self.loader == "subset"),
        )
        return not any(forbidden)

    def rows_line(self):
        rows = {"5 rows": "(101, 138, 175, 212, 249)", "all rows": "range(256)", "1 row": "(150,)"}[self.rows]
        return f"ROWS = {rows}"

    def change(self, value):
        """Return the lines of the change, with an expression for the new value."""
        if self.still:
            return UNRELATED[self.how]
        if isinstance(value, tuple):
            new = f"({self.state.value(value[0])} if {value[1]} else {self.state.value(0)})"
        else:
            new = self.state.value(value)
        return self.state.changes[self.how].format(new=new, also=self.state.also)

    def method(self):
        if self.who != "method":
            return ""
        lines = self.change(WHENS[self.when][2])
        lines = re.sub(r"(?<![.\w])data\b", "self", lines)
        return "def on_progress(self, epoch, step):\n" + block(lines)

    def functions(self):
        lines = self.change(WHENS[self.when][2])
        if self.who in ("function", "thread"):
            return "\ndef change(data, epoch, step):\n" + block(lines)
        if self.who == "callback":
            head = "\nclass Callback:\n    def __init__(self, data):\n        self.data = data\n\n"
            return head + "    def __call__(self, epoch, step):\n        data = self.data\n" + block(lines, 2)
        return ""

    def call(self):
        """Return the lines that make the change."""
        return {
            "inline": self.change(WHENS[self.when][2]),
            "function": "change(data, epoch, step)",
            "method": "data.on_progress(epoch, step)",
            "thread": "writer = threading.Thread(target=change, args=(data, epoch, step))\nwriter.start()\nwriter.join()",
            "callback": "callback(epoch, step)",
        }[self.who]


def block(lines, depth=1):
    return "".join(f"{'    ' * depth}{line}\n" for line in lines.splitlines())


def body(plan):
    """Return the lines of `main`."""
    loader = LOADERS[plan.loader]
    more = plan.state.arguments + (", num_workers=2" if plan.workers else "")
    where, condition, _ = WHENS[plan.when]
    change = condition + "\n" + block(plan.call()) if condition else plan.call() + "\n"
    at = {place: change if place == where else "" for place in ("before", "between", "after_iter", "mid", "break")}
    make = f"loader = wrap({loader.make.format(more=more)})\n"
    inner = f"rec(batch)\nstep += 1\n{at['mid']}"
    if where == "break":
        inner += "if epoch == 1 and step % 16 == 5:\n    break\n"
        at["between"] = at["break"]
    each = (make if loader.each_epoch else "") + at["between"]
    each += "batches = iter(loader)\n" + at["after_iter"] if where == "after_iter" else "batches = loader\n"
    each += "for batch in batches:\n" + block(inner)
    if loader.second:
        each += "for batch in second:\n" + block("rec(batch)")
    head = "global SCALE\n" if "global SCALE" in change else ""
    change = at["before"].replace("global SCALE\n", "")
    text = head + "data = Samples()\nepoch = step = 0\nlosses, weights = [], torch.ones(100)\n"
    text += "callback = Callback(data)\n" if plan.who == "callback" else ""
    text += ("" if loader.each_epoch else make) + (
        f"second = wrap({loader.second.format(more=more)})\n" if loader.second else ""
    )
    text += change + f"for epoch in range({5 if plan.workers else 6}):\n" + block(each.replace("global SCALE\n", ""))
    text += f"    rec({plan.state.also})\n" if plan.state.also != "0" else ""
    return text + "rec(streams())\n"
