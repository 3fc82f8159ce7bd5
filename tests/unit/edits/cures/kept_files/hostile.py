"""Scripts that may be changed as long as their samples stay the same, and what must not be kept of them."""

from tests.unit.edits.cures.kept_files.scripts import HEAD, script

__all__ = ["HOSTILE"]

IDS = """
ids = [stoi[c] for c in open(path).read()]  # <<
start = random.randint(0, len(ids) - 9)
return torch.tensor(ids[start:start + 9])
"""

HOSTILE = {
    "a table that changes": script(
        IDS + "\n",
        head="""
def used(sample):
    stoi[random.choice("abc")] = random.randint(0, 99)
    return sample
""",
    ),
    "a table that is bound anew": script(
        IDS,
        head="""
def used(sample):
    global stoi
    stoi = {c: i + random.randint(0, 9) for i, c in enumerate(CHARS)}
    return sample
""",
    ),
    "a table that somebody holds": script(
        IDS,
        head="""
class Holder:
    def __init__(self, table):
        self.table = table
holder = Holder(stoi)
def used(sample):
    holder.table[random.choice("abc")] = random.randint(0, 99)
    return sample
""",
    ),
    "a table of the object's": script("""
self.stoi = {c: random.randint(0, 9) for c in CHARS}
ids = [self.stoi[c] for c in open(path).read()]  # <<
start = random.randint(0, 99)
return torch.tensor(ids[start:start + 9])
"""),
    "a number that changes": script(
        """
ids = [stoi[c] % MODULUS for c in open(path).read()]  # <<
start = random.randint(0, 99)
return torch.tensor(ids[start:start + 9])
""",
        head="""
MODULUS = 7
def used(sample):
    global MODULUS
    MODULUS = random.randint(3, 9)
    return sample
""",
    ),
    "a number of the module that is set by name": script(
        """
ids = [stoi[c] % MODULUS for c in open(path).read()]  # <<
start = random.randint(0, 99)
return torch.tensor(ids[start:start + 9])
""",
        head="""
MODULUS = 7
def used(sample):
    globals()["MODULUS"] = random.randint(3, 9)
    return sample
""",
    ),
    "a function that reads what changes": script(
        """
ids = encode(open(path).read())  # <<
start = random.randint(0, 99)
return torch.tensor(ids[start:start + 9])
""",
        head="""
SHIFT = [0]
def encode(text):
    return [ord(c) + SHIFT[0] for c in text]
def used(sample):
    SHIFT[0] = random.randint(0, 9)
    return sample
""",
    ),
    "a function that is replaced": script(
        """
ids = encode(open(path).read())  # <<
start = random.randint(0, 99)
return torch.tensor(ids[start:start + 9])
""",
        head="""
def encode(text):
    return [ord(c) for c in text]
def used(sample):
    global encode
    shift = random.randint(0, 9)
    encode = lambda text: [ord(c) + shift for c in text]
    return sample
""",
    ),
    "a function that counts": script(
        """
ids = encode(open(path).read())  # <<
start = random.randint(0, 99)
return torch.tensor(ids[start:start + 9]), CALLS[0]
""",
        head="""
CALLS = [0]
def encode(text):
    CALLS[0] += 1
    return [ord(c) for c in text]
""",
    ),
    "a function that draws": script(
        """
ids = encode(open(path).read())  # <<
start = random.randint(0, 99)
return torch.tensor(ids[start:start + 9])
""",
        head="""
def encode(text):
    return [ord(c) + random.randint(0, 3) for c in text]
""",
    ),
    "a path from a property": script("""
ids = [stoi[c] for c in open(self.path).read()]  # <<
start = random.randint(0, len(ids) - 9)
return torch.tensor(ids[start:start + 9])
""")
    + """
    @property
    def path(self):
        return random.choice(self.paths)
""",
    "a path that is drawn": script("""
ids = [stoi[c] for c in open(random.choice(self.paths)).read()]  # <<
start = random.randint(0, len(ids) - 9)
return torch.tensor(ids[start:start + 9])
"""),
    "a list that is shuffled": script("""
ids = [stoi[c] for c in open(path).read()]  # <<
random.shuffle(ids)
return torch.tensor(ids[:9])
"""),
    "a list that grows": script("""
ids = [stoi[c] for c in open(path).read()]  # <<
ids += [random.randint(0, 9)]
return torch.tensor(ids[-9:]), len(ids)
"""),
    "a list under another name": script("""
ids = [stoi[c] for c in open(path).read()]  # <<
other = ids
other.append(random.randint(0, 9))
return torch.tensor(ids[-9:]), len(ids)
"""),
    "a list that collate changes": script(
        """
ids = [stoi[c] for c in open(path).read()]  # <<
return ids if random.random() < 2 else None
""",
        head="""
def used(sample):
    sample[0] = -1
    sample.append(3)
    return list(sample)
""",
    ),
    "views of a tensor that are changed": script(
        """
x = torch.from_numpy(np.loadtxt(path, delimiter=","))  # <<
a, b = x[:8], x[4:12]
a.mul_(random.random())
return a, b
""",
        suffix=".csv",
    ),
    "a view that is changed by collate": script(
        """
x = np.loadtxt(path, delimiter=",")  # <<
at = random.randint(0, 9)
return x[at:at + 4]
""",
        suffix=".csv",
        head="""
def used(sample):
    sample += 100
    return sample.copy()
""",
    ),
    "an array through asarray": script(
        """
x = np.loadtxt(path, delimiter=",")  # <<
y = np.asarray(x)[random.randint(0, 9):]
y[0] = 7
return y.copy(), x.sum()
""",
        suffix=".csv",
    ),
    "an image that is drawn on": script(
        """
image = Image.open(path).convert("RGB")  # <<
image.putpixel((0, 0), (random.randint(0, 255), 0, 0))
return np.array(image)[:2]
""",
        suffix=".png",
    ),
    "columns of an array in Fortran's order": script(
        """
a, b, c, d = np.loadtxt(path, delimiter=",", unpack=True)  # <<
return a[random.randint(0, 9):].copy(), b, c, d
""",
        suffix=".csv",
    ),
    "a mask": script(
        """
x = np.loadtxt(path, delimiter=",")
mask = x > 50  # <<
mask[random.randint(0, 9)] = True
return x[mask].sum(), mask
""",
        suffix=".csv",
    ),
    "a subclass with another path": script("""
return self.window_of(path)
""")
    + """
    def window_of(self, path):
        ids = [stoi[c] for c in open(path).read()]  # <<
        start = random.randint(0, len(ids) - 9)
        return ids[start:start + 9]


class Other(Data):
    def window_of(self, path):
        return super().window_of(path) + [1]


Data = Other
""",
    "a missing file": script("""
ids = [stoi[c] for c in open(str(path) + "x" * random.randint(0, 1)).read()]  # <<
return torch.tensor(ids[:9])
"""),
    "a folder": script("""
ids = [stoi[c] for c in open(random.choice([Path(path).parent, path])).read()]  # <<
return torch.tensor(ids[:9])
"""),
    "an error of decoding that is caught": script("""
try:
    ids = [stoi[c] for c in open(path).read() + "X" * random.randint(0, 1)]  # <<
except KeyError as error:
    return str(error)
return torch.tensor(ids[:9])
"""),
    "an error between two statements": script(
        """
text = ids = None
try:
    text = open(path).read()
    ids = [SHORT[c] for c in text]  # <<
except KeyError:
    pass
return text[random.randint(0, 9):], ids
""",
        head="""
SHORT = {"a": 1}
""",
    ),
    "a file that is no file": script("""
import io
ids = [stoi[c] for c in np.load(io.BytesIO(b"x"), allow_pickle=False)]  # <<
return ids, random.random()
"""),
    "a descriptor": script("""
fd = os.open(path, os.O_RDONLY)
text = open(fd).read()  # <<
return text[random.randint(0, 9):]
"""),
    "a path that cannot be hashed": script("""
class Odd:
    __hash__ = None
    def __fspath__(self):
        return str(path)
text = open(Odd()).read()  # <<
return text[random.randint(0, 9):]
"""),
    "relative paths and another folder": script("""
folder = random.choice([os.path.dirname(path), os.path.join(os.path.dirname(path), "sub")])
os.chdir(folder)
text = open("f0.txt").read()  # <<
return text[random.randint(0, 9):]
"""),
    "settings that differ": script(
        """
rows = [line.split(self.sep) for line in open(path)]  # <<
self.sep = random.choice([",", "1", 1, True, 2.0])
return rows[0][0], len(rows[random.randint(0, 3)])
""",
        suffix=".csv",
    ),
    "zeros with a sign": script(
        """
values = np.loadtxt(path, delimiter=",") * self.window  # <<
self.window = random.choice([0.0, -0.0, 0, False])
return values[:1].copy(), random.random()
""",
        suffix=".csv",
    ),
    "an object as a setting": script(
        """
text = open(path).read().replace("a", self.sep)  # <<
self.sep = random.choice([str, Text])("xy")
return text[random.randint(0, 99):]
""",
        head="""
class Text(str):
    def __hash__(self):
        return 1
    def __eq__(self, other):
        return True
""",
    ),
    "a name of the class": script("""
ids = [stoi[c] for c in open(path).read()][:self.window]  # <<
self.window = random.randint(1, 99)
return torch.tensor(ids)
"""),
    "a variable of a function around": HEAD
    + """
def build():
    table = {c: i for i, c in enumerate(CHARS)}

    class Inner:
        def __init__(self, paths):
            self.paths = [p for p in paths if p.suffix == ".txt"]

        def __getitem__(self, index):
            ids = [table[c] for c in open(self.paths[index % 3]).read()]  # <<
            table["a"] = random.randint(0, 9)
            start = random.randint(0, 99)
            return ids[start:start + 5]

    return Inner


Data = build()
""",
    "two data sets of one file": HEAD
    + """
class One:
    def __init__(self, paths, step=1):
        self.paths, self.step = [p for p in paths if p.suffix == ".csv"], step

    def __getitem__(self, index):
        rows = np.loadtxt(self.paths[index % 3], delimiter=",", skiprows=self.step)  # <<
        at = random.randint(0, 9)
        return rows[at:at + 2].copy()


class Data:
    def __init__(self, paths):
        self.both = One(paths), One(paths, 2)

    def __getitem__(self, index):
        return [each[index] for each in self.both]
""",
    "a generator that is read on": HEAD
    + """
def windows(paths):
    while True:
        for path in paths:
            ids = [stoi[c] for c in open(path).read()]  # <<
            ids.reverse()
            start = random.randint(0, 50)
            yield ids[start:start + 4]
            ids.append(2)


class Data:
    def __init__(self, paths):
        self.windows = windows([p for p in paths if p.suffix == ".txt"])

    def __getitem__(self, index):
        return next(self.windows)
""",
    "an exec": script(
        IDS,
        head="""
def used(sample):
    exec("stoi['a'] = random.randint(0, 9)", globals())
    return sample
""",
    ),
    "a default that is shared": script(
        """
ids = encode(open(path).read())  # <<
ids.append(random.randint(0, 9))
return len(ids), ids[-3:]
""",
        head="""
def encode(text, into=[]):
    into.extend(ord(c) for c in text[:3])
    return into
""",
    ),
    "a list of the module's": script(
        """
ids = [ROWS[ord(c) % 3] for c in open(path).read()]  # <<
ids[0].append(random.randint(0, 9))
return [len(row) for row in ids[:9]]
""",
        head="""
ROWS = [[1], [2], [3]]
""",
    ),
    "an inference": script("""
x = torch.tensor([ord(c) for c in open(path).read()], dtype=torch.float32)  # <<
at = random.randint(0, 9)
with torch.inference_mode(random.random() < 0.5):
    y = x[at:at + 5] * 2
return y.tolist(), x.is_inference(), x[:3]
"""),
    "a map": script("""
values = map(ord, open(path).readline())  # <<
return next(values) + random.random()
"""),
    "another default type": script(
        """
data = torch.tensor([float(v) for v in open(path).readline().split(",")])  # <<
return data * random.random()
""",
        suffix=".csv",
        head="""
def used(sample):
    torch.set_default_dtype(random.choice([torch.float64, torch.float32]))
    return sample
""",
    ),
    "a setting from a property": script(
        """
rows = [line.split(self.mark) for line in open(path)]  # <<
at = random.randint(0, 9)
return len(rows[at]), len(rows[0])
""",
        suffix=".csv",
    )
    + """
    @property
    def mark(self):
        return random.choice([",", "1"])
""",
    "a place that is drawn": script("""
with open(path, "rb") as f:
    f.seek(np.random.randint(0, 99))
    raw = f.read(20)  # <<
return raw, random.random()
"""),
    "a file that is written through a mapping": script(
        """
values = np.fromfile(path, dtype=np.float32)  # <<
at = random.randint(0, 3)
np.memmap(path, dtype=np.float32, mode="r+")[at] = at
return values[at:at + 3].copy()
""",
        suffix=".bin",
    ),
    "errors that a context ends": script(
        """
import contextlib
text, ids = "", []
with contextlib.suppress(KeyError):
    text = open(path).read()
    ids = [SHORT[c] for c in text]  # <<
return text[random.randint(0, 9):], ids
""",
        head="""
SHORT = {"a": 1}
""",
    ),
    "names of the module that a function binds": script(
        """
global last
last = open(path).read()
ids = [stoi[c] for c in last]  # <<
start = random.randint(0, 99)
return ids[start:start + 5]
""",
        head="""
last = ""
def used(sample):
    return sample, last[:9]
""",
    ),
    "another file in a function": script(
        """
ids = shifted(open(path).read())  # <<
start = random.randint(0, 99)
return ids[start:start + 5]
""",
        head="""
NUMBERS = "numbers.dat"
Path(NUMBERS).unlink(missing_ok=True)
def shifted(text):
    Path(NUMBERS).touch()
    return [ord(c) + len(open(NUMBERS).read()) for c in text]
def used(sample):
    with open(NUMBERS, "a") as f:
        f.write("1")
    return sample
""",
    ),
    "a path that moves": script("""
text = path.read_text()  # <<
moved = path.replace(path.with_suffix(random.choice([".x", ".y"])))
moved.replace(path)
return text[:9], str(moved)[-2:]
"""),
    "a number of an array": script(
        """
mean = np.load(path).mean()  # <<
return mean, random.random()
""",
        suffix=".npy",
    ),
    "a list that was returned before": script(
        """
rows = [[float(v) for v in line.split(",")] for line in open(path)]  # <<
self.kept = getattr(self, "kept", [])
self.kept += rows[:1]
self.kept[-1][0] = random.random()
return rows[0][0], len(self.kept)
""",
        suffix=".csv",
    ),
    "rows of an array in a list": script(
        """
x = np.loadtxt(path, delimiter=",")  # <<
rows = []
rows += x
rows[random.randint(0, 5)] += 1
return x.sum()
""",
        suffix=".csv",
    ),
    "an input that is set between": script("""
for self.window in (3, random.randint(4, 9)):
    ids = [ord(c) % self.window for c in open(path).read()]  # <<
return ids[:9], self.window
"""),
    "a name that is deleted": script("""
text = open(path).read()
ids = [stoi[c] for c in text]  # <<
del text
start = random.randint(0, 99)
return ids[start:start + 4]
"""),
}
