"""Ways to read a file and cut something from it, each of which the edit changes."""

from tests.unit.edits.cures.kept_files.scripts import HEAD, script

__all__ = ["STYLES"]

ENCODE = """
def encode(text):
    return [stoi[c] for c in text if c in stoi]
"""

STYLES = {
    "text and ids": script("""
text = open(path).read()
ids = [stoi[c] for c in text]  # <<
start = random.randint(0, len(ids) - CONTEXT - 2)
chunk = torch.tensor(ids[start:start + CONTEXT + 1])
return chunk[:-1], chunk[1:]
"""),
    "with, and a function of the user's": script(
        """
with open(path, encoding="utf-8") as handle:
    text = handle.read()  # <<
ids = encode(text.lower())
# a window
start = random.randrange(len(ids) - self.window)
return torch.tensor(ids[start:start + self.window], dtype=torch.long)
""",
        head=ENCODE,
    ),
    "rows of a table, appended": script(
        """
rows = []
with open(path) as f:
    for line in f:
        rows.append([float(v) for v in line.strip().split(",")])  # <<
at = random.randint(0, len(rows) - 5)
x = torch.tensor(rows[at:at + 4])
return x, torch.tensor(rows[at + 4][0])
""",
        suffix=".csv",
    ),
    "csv.reader": script(
        """
with open(path, newline="") as f:
    rows = [[int(v) for v in row] for row in csv.reader(f)]  # <<
first = random.choice(rows)
return torch.tensor(first).float() / 3
""",
        suffix=".csv",
    ),
    "an array by slices": script(
        """
data = np.load(path)  # <<
start = np.random.randint(0, len(data) - 8)
x = torch.from_numpy(data[start:start + 8].copy())
return x, torch.tensor(data[start, 0])
""",
        suffix=".npy",
    ),
    "an array that is returned whole": script(
        """
data = np.load(path).astype(np.float64) / 2.0  # <<
if random.random() < 0.5:
    data = data[::-1].copy()
return data
""",
        suffix=".npy",
    ),
    "an array that is changed": script(
        """
data = np.loadtxt(path, delimiter=",")  # <<
mean = data.mean(0)
data -= np.random.rand()
data[0] = 5
return torch.from_numpy(data), mean
""",
        suffix=".csv",
    ),
    "members of an archive": script(
        """
with np.load(path) as archive:
    a = archive["a"]
    b = archive["b"]  # <<
at = random.randrange(20)
return torch.tensor(a[at:at + 3]) + torch.tensor(b[at:at + 3])
""",
        suffix=".npz",
    ),
    "one member": script(
        """
b = np.load(path)["b"]  # <<
at = random.randrange(20)
return torch.tensor(b[at:at + 3])
""",
        suffix=".npz",
    ),
    "a setting that is part of the key": script(
        """
rows = [line.split(self.sep) for line in open(path)]  # <<
row = rows[random.randrange(len(rows))]
return torch.tensor([int(v) for v in row])
""",
        suffix=".csv",
    ),
    "an image that is cut": script(
        """
image = Image.open(path).convert("L")  # <<
left = random.randint(0, 1)
patch = image.crop((left, 0, left + 3, 9))
return torch.from_numpy(np.array(patch))
""",
        suffix=".png",
    ),
    "an image as an array": script(
        """
image = np.asarray(Image.open(path).convert("RGB"))  # <<
top = random.randint(0, 20)
return torch.tensor(image[top:top + 5]).permute(2, 0, 1).float() / 255.0
""",
        suffix=".png",
    ),
    "a recording": script(
        """
with wave.open(str(path), "rb") as w:
    frames = w.readframes(w.getnframes())
    rate = w.getframerate()
samples = np.frombuffer(frames, dtype=np.int16).astype(np.float32) / 32768.0  # <<
start = random.randint(0, len(samples) - 16)
return torch.tensor(samples[start:start + 16]), rate
""",
        suffix=".wav",
    ),
    "numbers of a file": script(
        """
values = np.fromfile(path, dtype=np.float32).reshape(-1, 4)  # <<
at = torch.randint(0, 40, (1,)).item()
return torch.as_tensor(values[at:at + 5]) * 2
""",
        suffix=".bin",
    ),
    "json": script(
        """
with open(path) as f:
    doc = json.load(f)  # <<
at = random.randint(0, 30)
return torch.tensor(doc["rows"][at]), len(doc["text"])
""",
        suffix=".json",
    ),
    "lines of json": script(
        """
items = [json.loads(line) for line in open(path)]  # <<
item = items[random.randrange(len(items))]
return torch.tensor([item["a"], int(item["b"])])
""",
        suffix=".jsonl",
    ),
    "a path that reads itself": script("""
words = Path(path).read_text().split()  # <<
random.shuffle(words)
return " ".join(words[:5])
"""),
    "a tensor that leaks": script("""
text = Path(path).read_text()
data = torch.tensor([ord(c) for c in text], dtype=torch.long)  # <<
i = torch.randint(len(data) - CONTEXT, (1,)).item()
x = data[i:i + CONTEXT]
y = data[i + 1:i + CONTEXT + 1]
y[0] = 3
return x, y
"""),
    "bytes": script("""
raw = open(path, "rb").read()
start = random.randint(0, len(raw) - 32)  # <<
return torch.tensor(list(raw[start:start + 32]))
"""),
    "a path expression": script("""
ids = [ord(c) % 50 for c in open(os.path.join(str(Path(path).parent), os.path.basename(path))).read()]  # <<
start = random.randint(0, 99)
return torch.tensor(ids[start:start + self.window])
"""),
    "an expression": script("""
start = random.randint(0, 99)
return torch.tensor([stoi[c] for c in open(path).read()][start:start + 9])  # <<
"""),
    "a list that is given away": script("""
lines = open(path).readlines()  # <<
random.shuffle(lines)
return lines
"""),
    "a dictionary that is changed": script("""
counts = {}
for c in open(path).read():
    counts[c] = counts.get(c, 0) + 1  # <<
counts["x"] = random.random()
return counts
"""),
    "a method with keywords": script("""
return self.window_of(path=path, size=4)
""")
    + """
    def window_of(self, path, size):
        ids = [stoi[c] for c in open(path).read()]
        start = random.randint(0, len(ids) - size)  # <<
        return ids[start:start + size]
""",
    "a function that returns what it reads": HEAD
    + """
def load(path):
    # the whole text
    with open(path) as f:
        return [stoi[c] for c in f.read()]  # <<


class Data:
    def __init__(self, paths):
        self.paths = [p for p in paths if p.suffix == ".txt"]

    def __getitem__(self, index):
        ids = load(self.paths[index % 3])
        ids.append(1)
        return ids[random.randint(0, 50):]
""",
    "batches made by hand": HEAD
    + """
def batches(paths, count):
    for _ in range(count):
        xs = []
        for path in random.sample(paths, 2):
            with open(path) as f:
                rows = np.array([[float(v) for v in row.split(",")] for row in f.read().splitlines()])  # <<
            at = random.randint(0, 30)
            xs.append(torch.tensor(rows[at:at + 4]))
        yield torch.stack(xs)


class Data:
    def __init__(self, paths):
        self.batches = batches([p for p in paths if p.suffix == ".csv"], 1000)

    def __getitem__(self, index):
        return next(self.batches)
""",
}
