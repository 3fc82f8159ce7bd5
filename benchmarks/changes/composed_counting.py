"""State that `__getitem__` itself changes: what counts, turns, caches, logs; read by a sample, or by the script."""

from state import State

READ = "self.bump(index)"


def counting(name, init, bump, gives="0", also="self.seen", names=("seen",), top=""):
    """Return a state that each sample changes, whether or not a sample shows it, and that the script may set back."""
    body = bump.strip() + f"\nreturn {gives}"
    lines = "\n".join("    " + line for line in body.splitlines())
    return State(
        name,
        init,
        READ,
        {
            "looked_at": "rec({also})",
            "set_back": init.replace("self.", "data.").replace("{", "{{").replace("}", "}}"),
        },
        top=top,
        methods=f"def bump(self, index):\n{lines}",
        once=("looked_at", "set_back"),
        also=also.replace("self.", "data."),
        names=names,
    )


COUNTS = (
    counting("number", "self.seen = 0", "self.seen += 1"),
    counting("number_shown", "self.seen = 0", "self.seen += 1", gives="self.seen"),
    counting("list_of_visits", "self.seen = []", "self.seen.append(int(index))"),
    counting("list_of_counts", "self.seen = [0] * 256", "self.seen[index] += 1"),
    counting("counts_shown", "self.seen = [0] * 256", "self.seen[index] += 1", gives="self.seen[index]"),
    counting("array_of_counts", "self.seen = np.zeros(256, dtype=np.int64)", "self.seen[index] += 1"),
    counting("array_shown", "self.seen = np.zeros(256)", "self.seen[index] += 1", gives="float(self.seen.sum())"),
    counting("tensor_of_counts", "self.seen = torch.zeros(256)", "self.seen[index] += 1"),
    counting("tensor_shown", "self.seen = torch.zeros(())", "self.seen += 1", gives="float(self.seen)"),
    counting("set_of_visits", "self.seen = set()", "self.seen.add(int(index))", also="sorted(self.seen)"),
    counting("dict_of_counts", "self.seen = {}", "self.seen[index] = self.seen.get(index, 0) + 1"),
    counting("defaultdict_of_counts", "self.seen = collections.defaultdict(int)", "self.seen[int(index)] += 1"),
    counting("counter_of_visits", "self.seen = collections.Counter()", "self.seen[int(index)] += 1"),
    counting(
        "deque_of_visits",
        "self.seen = collections.deque(maxlen=7)",
        "self.seen.append(int(index))",
        also="list(self.seen)",
    ),
    counting(
        "cache_by_index",
        "self.seen = {}",
        "if index not in self.seen:\n    self.seen[int(index)] = float(self.rows[index].sum())",
        gives="self.seen[index]",
        also="list(self.seen)",
    ),
    counting("turning_deque", "self.seen = collections.deque([1, 2, 3])", "self.seen.rotate(1)", gives="self.seen[0]"),
    counting(
        "generator", "self.seen = (i * i % 7 for i in range(10**6))", "value = next(self.seen)", gives="value", also="0"
    ),
    counting(
        "itertools_cycle",
        "self.seen = __import__('itertools').cycle([1, 2, 3])",
        "value = next(self.seen)",
        gives="value",
        also="next(self.seen)",
    ),
    counting(
        "itertools_count", "self.seen = __import__('itertools').count()", "next(self.seen)", also="next(self.seen)"
    ),
    counting("class_counter", "Samples.seen = 0", "Samples.seen += 1", also="Samples.seen"),
    counting(
        "global_counter", "SEEN.clear()", "SEEN.append(int(index))", also="SEEN", top="SEEN = []", names=("SEEN",)
    ),
    counting("nested_counter", 'self.seen = {"reads": {"train": [0]}}', 'self.seen["reads"]["train"][0] += 1'),
    counting(
        "own_random",
        "self.seen = random.Random(3)",
        "value = self.seen.random()",
        gives="value",
        also="self.seen.random()",
    ),
    counting(
        "own_generator",
        "self.seen = torch.Generator().manual_seed(3)",
        "value = float(torch.rand((), generator=self.seen))",
        gives="value",
        also="torch.rand(2, generator=self.seen)",
    ),
    counting(
        "own_numpy_generator",
        "self.seen = np.random.default_rng(3)",
        "value = self.seen.random()",
        gives="value",
        also="self.seen.random()",
    ),
    counting("torch_stream", "self.seen = 0", "value = float(torch.rand(()))", gives="value"),
    counting("python_stream", "self.seen = 0", "value = random.random()", gives="value"),
    counting("numpy_stream", "self.seen = 0", "value = np.random.rand()", gives="value"),
    counting(
        "log_file",
        'open("visits.log", "w").close()',
        'with open("visits.log", "a") as log:\n    log.write(f"{int(index)}\\n")',
        also='sorted(open("visits.log").read().split())',
        names=(),
    ),
    counting(
        "last_index",
        "self.seen = None",
        "before, self.seen = self.seen, int(index)",
        gives="-1 if before is None else before",
    ),
    counting("running_mean", "self.seen = torch.zeros(64)", "self.seen.mul_(0.9).add_(self.rows[index], alpha=0.1)"),
    counting(
        "object_counter",
        "self.seen = types.SimpleNamespace(reads=0)",
        "self.seen.reads += 1",
        also="self.seen.reads",
        names=("seen", "reads"),
    ),
)
