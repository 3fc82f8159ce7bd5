"""Where settings live further away: the environment, contexts, files, weak references, nested dicts, collate functions."""

from state import State

MIXING = """
class Mixing:
    def __init__(self):
        self.share, self.bands = 1.0, [1.0, 1.0]

    def set_share(self, share):
        self.share = share

    def __call__(self, samples):
        x, y = default_collate(samples)
        return x * self.share * self.bands[0], y


MIXING = Mixing()
"""
GAINED = """
def gained(samples, options):
    x, y = default_collate(samples)
    return x * options["gain"] + sum(options["shifts"]), y


OPTIONS = {"gain": 1.0, "shifts": []}
"""

OUTSIDE = (
    State(
        "context_variable",
        "pass",
        "STRENGTH.get()",
        {"set": "STRENGTH.set({new})"},
        top='STRENGTH = contextvars.ContextVar("STRENGTH", default=1.0)',
        by_row=False,
        names=("STRENGTH",),
    ),
    State(
        "weak_reference",
        "self.schedule = weakref.ref(SCHEDULE)",
        "self.schedule().strength",
        {"attribute": "SCHEDULE.strength = {new}", "through": "data.schedule().strength = {new}"},
        top="class Schedule:\n    strength = 1.0\n\n\nSCHEDULE = Schedule()",
        by_row=False,
        names=("strength",),
    ),
    State(
        "environment",
        "pass",
        'float(os.environ.get("STRENGTH", "1.0"))',
        {"item": 'os.environ["STRENGTH"] = {new}', "update": 'os.environ.update({{"STRENGTH": {new}}})'},
        by_row=False,
        values=('"1.0"', '"0.5"', "str(epoch)"),
        names=("environ", "STRENGTH"),
    ),
    State(
        "text_file",
        'pathlib.Path("labels.txt").write_text("\\n".join(str(i % 10) for i in range(256)))',
        'int(pathlib.Path("labels.txt").read_text().splitlines()[index])',
        {
            "written": 'pathlib.Path("labels.txt").write_text("\\n".join(str({new} + 1) for j in range(256)))',
            "replaced": 'pathlib.Path("new.txt").write_text("\\n".join(["5"] * 256))\nos.replace("new.txt", "labels.txt")',
        },
        once=("replaced",),
        shared=True,
    ),
    State(
        "npy_file",
        'np.save("labels.npy", np.arange(256) % 10)',
        'np.load("labels.npy")[index]',
        {"saved": 'np.save("labels.npy", np.array([{new} for j in range(256)]))'},
        shared=True,
    ),
    State(
        "memory_map",
        'np.save("labels.npy", np.arange(256) % 10)\nself.labels = np.load("labels.npy", mmap_mode="r+")',
        "self.labels[index]",
        {
            "item": "for j in ROWS:\n    data.labels[j] = {new}",
            "other_map": 'other = np.load("labels.npy", mmap_mode="r+")\nother[list(ROWS)] = [{new} for j in ROWS]\nother.flush()',
        },
        shared=True,
    ),
    State(
        "nested_config",
        'self.cfg = {"aug": {"scale": 1.0, "bands": [1.0, 1.0]}}',
        'self.cfg["aug"]["scale"] * self.cfg["aug"]["bands"][index % 2]',
        {
            "item": 'data.cfg["aug"]["scale"] = {new}',
            "list_item": 'data.cfg["aug"]["bands"][1] = {new}',
            "inner_replaced": 'data.cfg["aug"] = {{"scale": {new}, "bands": [1.0, 1.0]}}',
        },
        by_row=False,
        names=("aug", "scale", "bands", "cfg"),
    ),
    State(
        "collate_object",
        "pass",
        "0",
        {
            "attribute": "MIXING.share = {new}",
            "method": "MIXING.set_share({new})",
            "list_item": "MIXING.bands[0] = {new}",
        },
        top=MIXING,
        by_row=False,
        arguments=", collate_fn=MIXING",
        names=("share", "bands", "collate_fn"),
    ),
    State(
        "collate_method",
        "self.gain, self.pads = 1.0, np.zeros(3)",
        "0",
        {"attribute": "data.gain = {new}", "array": "data.pads[1] = {new}"},
        methods="def collate(self, samples):\n    x, y = default_collate(samples)\n    return x * self.gain, y + self.pads[1]",
        by_row=False,
        arguments=", collate_fn=data.collate",
        names=("gain", "pads"),
    ),
    State(
        "collate_partial",
        "pass",
        "0",
        {"dict_item": 'OPTIONS["gain"] = {new}', "list": 'OPTIONS["shifts"].append({new})'},
        top=GAINED,
        by_row=False,
        once=("list",),
        arguments=", collate_fn=functools.partial(gained, options=OPTIONS)",
        names=("OPTIONS", "options", "gain", "shifts", "collate_fn"),
    ),
)
