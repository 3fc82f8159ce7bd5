"""Functions put together at random from what may be compiled, with arguments at which arithmetic turns."""

import math
import random

import numpy as np

DTYPES = ("u1", "i1", "i2", "i4", "i8", "u4", "f4", "f8", "b1")


class Program:
    """One function `f(n, k, x, a, b)`: whole numbers n and k, a float x, arrays a and b."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.names = ["n", "k", "x"]
        self.lines = []
        self.depth = 0
        self.loops = []

    def text(self):
        """Return the function's text."""
        self._put(f"t = {self.rng.choice(['0', '0.0', '1', 'x', 'a[0]'])}")
        self.names.append("t")
        for _ in range(self.rng.randint(1, 2)):
            self._loop()
        back = self.rng.choice(["t", "t, n", "(t, s)", "t"])
        self._put("s = t" if "s" in back else "pass")
        self._put(f"return {back}")
        return "def f(n, k, x, a, b):\n" + "\n".join(self.lines) + "\n"

    def _put(self, line):
        self.lines.append("    " * (self.depth + 1) + line)

    def _loop(self):
        name = f"i{len(self.loops)}"
        over = self.rng.choice(("range(n)", "range(len(a))", "enumerate(a)", "reversed(range(n))"))
        over = f"for {name}{', v' if 'enumerate' in over else ''} in {over}:"
        self._put(over)
        self.depth += 1
        self.loops.append(name)
        here = [name, *(["v"] if "v" in over else [])]
        self.names += here
        for _ in range(self.rng.randint(1, 3)):
            self._statement()
        for each in here:
            self.names.remove(each)
        self.depth -= 1
        self.loops.pop()

    def _statement(self):
        kind = self.rng.random()
        if kind < 0.35:
            self._put(f"t {self.rng.choice(['=', '+=', '-=', '*='])} {self.value(2)}")
        elif kind < 0.5:
            self._put(f"b[{self.index()}] = {self.value(1)}")
        elif kind < 0.6:
            self._put(f"b[{self.index()}] += {self.value(1)}")
        elif kind < 0.8 and self.depth < 3:
            self._put(f"if {self.test()}:")
            self.depth += 1
            self._statement()
            self.depth -= 1
        elif kind < 0.9 and self.depth < 3:
            self._loop()
        else:
            self._put(f"if {self.test()}:")
            self._put(f"    {self.rng.choice(['break', 'continue'])}")

    def index(self):
        return self.rng.choice([*self.loops, f"{self.loops[-1]} - 1", "-1", "0", f"{self.loops[-1]} % 3", "k"])

    def test(self, depth=1):
        one, other = self.value(depth), self.value(depth)
        plain = f"{one} {self.rng.choice(['<', '<=', '>', '>=', '==', '!='])} {other}"
        return self.rng.choice([plain, plain, f"not ({plain})", f"{plain} and {self.value(0)}", f"0 < {one} < {other}"])

    def value(self, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            leaf = rng.choice(
                [*self.names, *self.names, f"a[{self.index()}]", f"b[{self.index()}]", "2", "0.5", "-3", "True", "7"]
            )
            return leaf
        one, other = self.value(depth - 1), self.value(depth - 1)
        return rng.choice(
            [
                f"({one} + {other})", f"({one} - {other})", f"({one} * {other})", f"({one} / {other})",
                f"({one} % {other})", f"({one} // {other})", f"-{one}", f"abs({one})", f"min({one}, {other})",
                f"max({one}, {other})", f"int({one})", f"float({one})", f"({one} if {self.test(0)} else {other})",
                f"({one} > {other})", f"({one})**2", f"math.sqrt(abs({one}))", f"round(float({one}))", f"bool({one})",
                f"({one} & 3)", f"math.floor({one})", f"math.exp(-abs({one}))",
            ]
        )  # fmt: skip


def arguments(seed, count=6):
    """Return arguments for `f`, all with the same kinds."""
    rng = random.Random(seed)
    kinds = [rng.choice(DTYPES) for _ in range(2)]
    return [
        (
            rng.choice([0, 1, 3, 4]),
            rng.choice([1, 0, -2, 5, 2**40, 2**62]),
            rng.choice([0.5, -0.0, 3.0, 1e200, math.inf, -7.25]),
            *(_array(rng, kind) for kind in kinds),
        )
        for _ in range(count)
    ]


def _array(rng, dtype):
    values = [rng.choice([0, 1, 2, 3, 5, 100, 7, 1, 0.25, 0]) for _ in range(rng.choice([4, 5]))]
    made = np.array(values).astype(dtype)
    return made[::-1] if rng.random() < 0.1 else made
