"""Scripts that are left as they are, each with a part of the reason."""

from tests.unit.edits.cures.kept_files.scripts import HEAD, script

__all__ = ["REFUSED"]

IDS = """
ids = [stoi[c] for c in open(path).read()]  # <<
start = random.randint(0, len(ids) - 9)
return torch.tensor(ids[start:start + 9])
"""

REFUSED = {
    "one file a sample": (
        "for one sample alone",
        script("""
ids = [ord(c) for c in open(self.paths[index]).read()]  # <<
return torch.tensor(ids)
"""),
    ),
    "shadowed open": (
        "",
        script(
            IDS.replace("stoi[c]", "ord(c)"),
            head="""
def open(path):
    return random.choice([Path(path).open(), Path(path).open()])
""",
        ),
    ),
    "a star import": ("not found here", "from os import *\n" + script(IDS.replace("stoi[c]", "c"))),
    "json.load replaced": (
        "load is set in the script",
        script(
            """
with open(path) as f:
    doc = json.load(f)  # <<
at = random.randint(0, 3)
return torch.tensor(doc["rows"][at])
""",
            suffix=".json",
            head="""
_load = json.load
json.load = lambda f: {"rows": [[random.random()]] * 4}
""",
        ),
    ),
    "json.load replaced by name": (
        "load is set in the script",
        script(
            """
with open(path) as f:
    doc = json.load(f)  # <<
return torch.tensor(doc["rows"][random.randint(0, 3)])
""",
            suffix=".json",
            head="""
setattr(json, "load", lambda f: {"rows": [[random.random()]] * 4})
""",
        ),
    ),
    "a handle that is kept": (
        "",
        script("""
self.handle = open(path)
return self.handle.read(random.randint(0, 9))  # <<
"""),
    ),
    "a handle in a dictionary": (
        "",
        script("""
self.handles = {path: open(path)}  # <<
return random.random()
"""),
    ),
    "a handle that is handed on": (
        "",
        script("""
f = open(path)  # <<
line = next(f)
return line[random.randint(0, 2):], f
"""),
    ),
    "lines that are read on": (
        "",
        script("""
lines = (line.strip() for line in open(path))  # <<
return [next(lines) for _ in range(random.randint(1, 3))]
"""),
    ),
    "rows that are read on": (
        "",
        script(
            """
rows = csv.reader(open(path))  # <<
return [next(rows) for _ in range(random.randint(1, 3))]
""",
            suffix=".csv",
        ),
    ),
    "an archive": (
        "an array or an archive",
        script(
            """
data = np.load(path)  # <<
return data["a"][random.randint(0, 9)]
""",
            suffix=".npz",
        ),
    ),
    "a mapped array": (
        "",
        script(
            """
data = np.load(path, mmap_mode="r")  # <<
return data[random.randint(0, 9)].copy()
""",
            suffix=".npy",
        ),
    ),
    "an image that is not loaded": (
        "",
        script(
            """
image = Image.open(path)  # <<
return image.size[random.randint(0, 1)]
""",
            suffix=".png",
        ),
    ),
    "rows that are changed": (
        "may be changed",
        script(
            """
with open(path) as f:
    doc = json.load(f)  # <<
doc["rows"][0].append(random.random())
return torch.tensor(doc["rows"][0])
""",
            suffix=".json",
        ),
    ),
    "rows that a transform gets": (
        "may be changed",
        script(
            """
with open(path) as f:
    doc = json.load(f)  # <<
return self.transform(doc, random.random())

""",
            suffix=".json",
        )
        + """
    def transform(self, doc, x):
        doc["n"] = x
        return len(doc)
""",
    ),
    "rows that are returned": (
        "may be changed",
        script(
            """
with open(path) as f:
    doc = json.load(f)  # <<
return doc, random.random()
""",
            suffix=".json",
        ),
    ),
    "rows that are kept": (
        "may be changed",
        script(
            """
with open(path) as f:
    doc = json.load(f)  # <<
self.last = doc["rows"]
return torch.tensor(doc["rows"][random.randint(0, 3)])
""",
            suffix=".json",
        ),
    ),
    "rows through another name": (
        "may be changed",
        script(
            """
with open(path) as f:
    doc = json.load(f)  # <<
rows = doc["rows"]
first = rows[random.randint(0, 3)]
first.sort()
return torch.tensor(first)
""",
            suffix=".json",
        ),
    ),
    "rows through a loop": (
        "may be changed",
        script(
            """
with open(path) as f:
    doc = json.load(f)  # <<
for row in doc["rows"]:
    row[0] = random.random()
return len(doc["rows"])
""",
            suffix=".json",
        ),
    ),
    "rows of an inner function": (
        "may be changed",
        script(
            """
with open(path) as f:
    doc = json.load(f)  # <<
def take():
    return doc
return torch.tensor(take()["rows"][random.randint(0, 2)])
""",
            suffix=".json",
        ),
    ),
    "a read-only array through a tensor": (
        "may be changed",
        script(
            """
image = np.asarray(Image.open(path))  # <<
x = torch.from_numpy(image)
x[random.randint(0, 3)] = 0
return x
""",
            suffix=".png",
        ),
    ),
    "a draw in the middle": (
        "",
        script("""
ids = [ord(c) for c in open(path).read() if random.random() < 0.5]  # <<
return torch.tensor(ids[:5])
""").replace("open(path).read()", "open(path)"),
    ),
    "a name that may come from above": (
        "",
        script("""
rows = self.window
with open(path) as f:
    for rows in f:  # <<
        pass
return rows, random.random()
"""),
    ),
    "a cached function": (
        "may keep it, or compile it",
        HEAD
        + """
import functools

@functools.lru_cache
def load(path):
    return [ord(c) for c in open(path).read()]  # <<

class Data:
    def __init__(self, paths):
        self.paths = paths
    def __getitem__(self, index):
        return load(self.paths[0])[random.randint(0, 9):]
""",
    ),
    "a compiled function": (
        "may keep it, or compile it",
        HEAD
        + """
@torch.jit.ignore
def load(path):
    return [ord(c) for c in open(path).read()]  # <<
""",
    ),
    "a file that is written": (
        "",
        script("""
with open(path, "a+") as f:
    f.seek(0)
    text = f.read()  # <<
    f.write("x")
return text[random.randint(0, 9):]
"""),
    ),
    "pickle": (
        "",
        script("""
import pickle
with open(path, "rb") as f:
    data = pickle.load(f)  # <<
return data["x"][random.randint(0, 9)]
"""),
    ),
    "torch.load of anything": (
        "",
        script("""
data = torch.load(path, weights_only=False)  # <<
return data["x"][random.randint(0, 9)]
"""),
    ),
    "an asynchronous read": (
        "",
        HEAD
        + """
async def load(path, pool):
    text = await pool.read(open(path))  # <<
    return text
""",
    ),
    "the block of a caught error": (
        "",
        script("""
try:
    with open(path) as f:
        doc = json.load(f)  # <<
except ValueError:
    doc = None
return doc, random.random()
"""),
    ),
    "objects of NumPy": (
        "",
        script(
            """
data = np.load(path, allow_pickle=True)  # <<
return data[:3], random.random()
""",
            suffix=".npy",
        ),
    ),
    "tests replace functions": (
        "replaced by those of a test",
        script(
            IDS,
            head="""
from unittest import mock
""",
        ),
    ),
    "another language": (
        "setlocale",
        script(
            IDS,
            head="""
import locale
locale.setlocale(locale.LC_ALL, "C")
""",
        ),
    ),
}
