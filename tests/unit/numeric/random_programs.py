"""Functions put together at random from what may be compiled, with arguments at which arithmetic turns."""

import math
import random

import numpy as np

DTYPES = ("u1", "i1", "i2", "i4", "i8", "u4", "f4", "f8", "b1")


class Program:
    """One function `f(n, k, x, a, b)`: whole numbers n and k, a float x, arrays a and b."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.style = self.rng.choice(["whole", "real", "mixed"])
        self.names = {"whole": ["n", "k"], "real": ["x"], "mixed": ["n", "k", "x"]}[self.style]
        self.lines = []
        self.depth = 0
        self.loops = []

    def text(self):
        """Return the function's text."""
        starts = {"whole": ["0", "1", "k"], "real": ["0", "0.0", "x", "a[0]"], "mixed": ["0", "0.0", "1", "x", "a[0]"]}
        self._put(f"t = {self.rng.choice(starts[self.style])}")
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
        here = [*([name] if self.style != "real" else []), *(["v"] if ", v" in over and self.style != "whole" else [])]
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
            return rng.choice(self._leaves())
        one, other = self.value(depth - 1), self.value(depth - 1)
        return rng.choice(_FORMS["both"] + _FORMS[self.style]).format(one, other, test=self.test(0))

    def _leaves(self):
        elements = [f"a[{self.index()}]", f"b[{self.index()}]"]
        whole, real = [*self.names, "2", "-3", "7"], [*self.names, "0.5", "-1.5", *elements]
        mixed = [*self.names, *self.names, *elements, "2", "0.5", "-3", "True", "7"]
        return {"whole": whole, "real": real, "mixed": mixed}[self.style]


_FORMS = {
    "both": [
        "({0} + {1})", "({0} - {1})", "({0} * {1})", "-{0}", "abs({0})", "min({0}, {1})", "max({0}, {1})",
        "({0} if {test} else {1})",
    ],
    "whole": ["({0} // {1})", "({0} % {1})", "({0})**2", "({0} & {1})", "({0} >> 2)", "int({0} > {1})"],
    "real": [
        "({0} / {1})", "({0} % {1})", "float({0})", "math.sqrt(abs({0}))", "math.exp(-abs({0}))", "math.sin({0})",
        "float({0} > {1})",
    ],
    "mixed": [
        "({0} / {1})", "({0} % {1})", "({0} // {1})", "int({0})", "float({0})", "({0} > {1})", "({0})**2",
        "math.sqrt(abs({0}))", "round(float({0}))", "bool({0})", "({0} & 3)", "math.floor({0})",
    ],
}  # fmt: skip


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
