"""Where labels live: lists, dicts, objects and what else is made of Python's own containers."""

from state import State

LABELS = "self.labels = [i % 10 for i in range(256)]"
ENTRY = """
class Entry:
    def __init__(self, label):
        self.label = label
        self.path = "%04d.png" % label

    def relabel(self, label):
        self.label = label
"""
SLOTTED = """
class Entry:
    __slots__ = ("label", "weight")

    def __init__(self, label):
        self.label, self.weight = label, 1.0
"""
FROZEN = """
@dataclasses.dataclass(frozen=True)
class Entry:
    label: int
    source: str = "web"
"""
RECORD = """
@dataclasses.dataclass
class Entry:
    label: int
    boxes: list = dataclasses.field(default_factory=list)
"""
PAIR = """
Pair = collections.namedtuple("Pair", "path label")
"""
OWN_MAPPING = """
class Table(collections.abc.MutableMapping):
    def __init__(self):
        self._inner = {}

    def __getitem__(self, key):
        return self._inner[key]

    def __setitem__(self, key, value):
        self._inner[key] = value

    def __delitem__(self, key):
        del self._inner[key]

    def __iter__(self):
        return iter(self._inner)

    def __len__(self):
        return len(self._inner)
"""
NAMES = 'self.names = [f"{i:05}.jpg" for i in range(256)]\n'

CONTAINERS = (
    State(
        "list",
        LABELS,
        "self.labels[index]",
        {
            "item": "for j in ROWS:\n    data.labels[j] = {new}",
            "slice": "data.labels[100:180] = [{new} for j in range(100, 180)]",
            "replaced": "data.labels = [{new} for j in range(256)]",
            "clear_extend": "data.labels.clear()\ndata.labels.extend({new} for j in range(256))",
            "sort": "data.labels.sort()",
            "reverse": "data.labels.reverse()",
            "insert_pop": "data.labels.insert(0, data.labels.pop())",
            "other_name": "known = data.labels\nfor j in ROWS:\n    known[j] = {new}",
        },
        once=("sort", "reverse", "insert_pop"),
    ),
    State(
        "growing_list",
        LABELS,
        "self.labels[index]",
        {
            "append": "data.labels.append(7)",
            "extend": "data.labels += [8, 9]",
            "pop": "del data.labels[-3:]",
            "insert": "data.labels.insert(3, 77)",
        },
        length="len(self.labels)",
        once=("append", "extend", "pop", "insert"),
    ),
    State(
        "list_of_dicts",
        'self.items = [{"id": i, "label": i % 10, "score": 0.5} for i in range(256)]',
        'self.items[index]["label"]',
        {
            "item": 'for j in ROWS:\n    data.items[j]["label"] = {new}',
            "update": "for j in ROWS:\n    data.items[j].update(label={new}, checked=True)",
            "merge": 'for j in ROWS:\n    data.items[j] |= {{"label": {new}}}',
            "replaced": 'for j in ROWS:\n    data.items[j] = {{"id": j, "label": {new}}}',
            "loop": 'for j, entry in enumerate(data.items):\n    if entry["id"] % 50 == 3:\n        entry["label"] = {new}',
        },
        names=("label",),
    ),
    State(
        "list_of_lists",
        "self.items = [[i, i % 10] for i in range(256)]",
        "self.items[index][-1]",
        {
            "item": "for j in ROWS:\n    data.items[j][1] = {new}",
            "append": "for j in ROWS:\n    data.items[j].append({new})",
            "slice": "for j in ROWS:\n    data.items[j][:] = [j, {new}]",
            "pop": "for j in ROWS:\n    data.items[j].pop(0)\n    data.items[j].append({new})",
        },
    ),
    State(
        "list_of_tuples",
        "self.items = [(i, i % 10) for i in range(256)]",
        "self.items[index][1]",
        {
            "replaced": "for j in ROWS:\n    data.items[j] = (j, {new})",
            "shuffle": "random.Random(epoch).shuffle(data.items)",
            "rebuilt": "data.items = [(i, y + 1) for i, y in data.items]",
        },
        once=("shuffle", "rebuilt"),
    ),
    State(
        "list_of_namedtuples",
        'self.items = [Pair(f"{i}.png", i % 10) for i in range(256)]',
        "self.items[index].label",
        {"replace": "for j in ROWS:\n    data.items[j] = data.items[j]._replace(label={new})"},
        top=PAIR,
    ),
    State(
        "list_of_objects",
        "self.items = [Entry(i % 10) for i in range(256)]",
        "self.items[index].label",
        {
            "attribute": "for j in ROWS:\n    data.items[j].label = {new}",
            "setattr": 'for j in ROWS:\n    setattr(data.items[j], "label", {new})',
            "vars": "for j in ROWS:\n    vars(data.items[j]).update(label={new})",
            "dict": 'for j in ROWS:\n    data.items[j].__dict__["label"] = {new}',
            "method": "for j in ROWS:\n    data.items[j].relabel({new})",
            "held_elsewhere": "for j, entry in enumerate(list(data.items)):\n    if j in ROWS:\n        entry.label = {new}",
        },
        top=ENTRY,
        names=("label",),
    ),
    State(
        "list_of_slotted_objects",
        "self.items = [Entry(i % 10) for i in range(256)]",
        "self.items[index].label",
        {
            "attribute": "for j in ROWS:\n    data.items[j].label = {new}",
            "object_setattr": 'for j in ROWS:\n    object.__setattr__(data.items[j], "label", {new})',
        },
        top=SLOTTED,
        names=("label",),
    ),
    State(
        "list_of_frozen_dataclasses",
        "self.items = [Entry(i % 10) for i in range(256)]",
        "self.items[index].label",
        {
            "dataclasses_replace": "for j in ROWS:\n    data.items[j] = dataclasses.replace(data.items[j], label={new})",
            "object_setattr": 'for j in ROWS:\n    object.__setattr__(data.items[j], "label", {new})',
        },
        top=FROZEN,
        names=("label",),
    ),
    State(
        "list_of_dataclasses",
        "self.items = [Entry(i % 10, [i, i]) for i in range(256)]",
        "self.items[index].label + sum(self.items[index].boxes)",
        {
            "attribute": "for j in ROWS:\n    data.items[j].label = {new}",
            "nested_append": "for j in ROWS:\n    data.items[j].boxes.append({new})",
            "nested_item": "for j in ROWS:\n    data.items[j].boxes[0] = {new}",
        },
        top=RECORD,
        names=("label", "boxes"),
        once=("nested_append", "nested_item"),
    ),
    State(
        "dict_by_name",
        NAMES + "self.labels = {name: i % 10 for i, name in enumerate(self.names)}",
        "self.labels.get(self.names[index], -1)",
        {
            "item": 'for j in ROWS:\n    data.labels[f"{{j:05}}.jpg"] = {new}',
            "update": 'data.labels.update({{f"{{j:05}}.jpg": {new} for j in ROWS}})',
            "pop": "for j in ROWS:\n    data.labels.pop(data.names[j], None)",
            "del_and_set": "for j in ROWS:\n    del data.labels[data.names[j]]\n    data.labels[data.names[j]] = {new}",
            "clear_update": "data.labels.clear()\ndata.labels.update((data.names[j], {new}) for j in range(256))",
            "replaced": "data.labels = {{**data.labels, **{{data.names[j]: {new} for j in ROWS}}}}",
            "names_swapped": "data.names[5], data.names[6] = data.names[6], data.names[5]",
        },
        once=("pop", "names_swapped"),
    ),
    State(
        "dict_of_dicts",
        'self.meta = {i: {"label": i % 10, "tags": [i]} for i in range(256)}',
        'self.meta[index]["label"] + self.meta[index]["tags"][-1]',
        {
            "item": 'for j in ROWS:\n    data.meta[j]["label"] = {new}',
            "nested": 'for j in ROWS:\n    data.meta[j]["tags"].append({new})',
            "replaced": 'for j in ROWS:\n    data.meta[j] = {{"label": {new}, "tags": [j]}}',
        },
        names=("label", "tags"),
        once=("nested",),
    ),
    State(
        "ordered_dict",
        "self.labels = collections.OrderedDict((i, i % 10) for i in range(256))",
        "self.labels[index] + next(iter(self.labels))",
        {
            "item": "for j in ROWS:\n    data.labels[j] = {new}",
            "move_to_end": "data.labels.move_to_end(next(iter(data.labels)))",
            "popitem": "key, value = data.labels.popitem(last=False)\ndata.labels[key] = value + 1",
        },
        once=("move_to_end", "popitem"),
    ),
    State(
        "defaultdict",
        "self.penalty = collections.defaultdict(float)",
        "self.penalty[index]",
        {
            "item": "for j in ROWS:\n    data.penalty[j] = {new}",
            "add": "for j in ROWS:\n    data.penalty[j] += 0.5",
            "clear": "data.penalty[3] = 1.0\nif epoch % 2:\n    data.penalty.clear()",
        },
        values=("0.0", "4.0", "epoch / 4"),
        once=("add", "clear"),
        also="len(data.penalty)",
    ),
    State(
        "counter",
        "self.hard = collections.Counter()",
        "self.hard[index]",
        {
            "update": "data.hard.update(list(ROWS))",
            "item": "for j in ROWS:\n    data.hard[j] = {new}",
            "subtract": "data.hard.subtract([3, 4, 4])",
        },
        values=("0", "4", "epoch"),
        once=("update", "subtract"),
    ),
    State(
        "deque",
        "self.window = collections.deque((i % 10 for i in range(256)), maxlen=256)",
        "self.window[index]",
        {
            "item": "for j in ROWS:\n    data.window[j] = {new}",
            "append": "data.window.append(50 + epoch)",
            "rotate": "data.window.rotate(5)",
            "popleft": "data.window.append(data.window.popleft())",
        },
        once=("append", "rotate", "popleft"),
    ),
    State(
        "set",
        "self.hard = set(range(40, 60))",
        "float(index in self.hard)",
        {
            "add": "data.hard.add(101 + epoch)",
            "discard": "data.hard.discard(50)",
            "union": "data.hard |= {{7, 8, 9}}",
            "replaced": "data.hard = set(ROWS)",
        },
        once=("add", "discard", "union", "replaced"),
    ),
    State(
        "user_dict",
        "self.labels = collections.UserDict({i: i % 10 for i in range(256)})",
        "self.labels[index]",
        {"item": "for j in ROWS:\n    data.labels[j] = {new}", "inner": "data.labels.data[150] = 33"},
        once=("inner",),
    ),
    State(
        "chain_map",
        "self.labels = collections.ChainMap({}, {i: i % 10 for i in range(256)})",
        "self.labels[index]",
        {"item": "for j in ROWS:\n    data.labels[j] = {new}", "below": "data.labels.maps[1][150] = 33"},
        once=("below",),
    ),
    State(
        "own_mapping",
        "self.labels = Table()\nfor i in range(256):\n    self.labels[i] = i % 10",
        "self.labels[index]",
        {
            "item": "for j in ROWS:\n    data.labels[j] = {new}",
            "update": "data.labels.update({{j: {new} for j in ROWS}})",
        },
        top=OWN_MAPPING,
    ),
)
