import numpy as np

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class KeyDoorGrid:
    """Fetch the key, then reach the door. Walls are redrawn at every reset."""

    def __init__(self, size=9, horizon=60, seed=0):
        self.size, self.horizon = size, horizon
        self.rng = np.random.default_rng(seed)

    def reset(self):
        n = self.size
        self.walls = self.rng.random((n, n)) < 0.12
        cells = self.rng.permutation(n * n)[:3]
        self.pos, self.key, self.door = (np.array(divmod(int(c), n)) for c in cells)
        for p in (self.pos, self.key, self.door):
            self.walls[tuple(p)] = False
        self.has_key, self.t = False, 0
        return self._obs()

    def _obs(self):
        o = np.zeros((5, self.size, self.size), np.float32)
        o[0] = self.walls
        o[(1, *self.pos)] = 1
        if not self.has_key:
            o[(2, *self.key)] = 1
        o[(3, *self.door)] = 1
        o[4] = self.has_key
        return o

    def step(self, action):
        self.t += 1
        new = self.pos + MOVES[action]
        reward = -0.01
        if 0 <= new[0] < self.size and 0 <= new[1] < self.size and not self.walls[tuple(new)]:
            self.pos = new
        if not self.has_key and (self.pos == self.key).all():
            self.has_key, reward = True, reward + 0.5
        done = self.has_key and (self.pos == self.door).all()
        if done:
            reward += 1.0
        return self._obs(), reward, bool(done or self.t >= self.horizon)
