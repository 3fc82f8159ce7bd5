"""Learning to play four-in-a-line on a 6 x 7 board by self-play with a value network over after-states."""
import copy
import random
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn

ROWS, COLS = 6, 7


@dataclass
class Move:
    player: int
    column: int
    row: int
    ply: int


@dataclass
class Game:
    board: np.ndarray = field(default_factory=lambda: np.zeros((ROWS, COLS), dtype=np.int8))
    player: int = 1
    moves: list = field(default_factory=list)
    winner: int = 0

    def legal(self):
        return [c for c in range(COLS) if self.board[0, c] == 0]

    def play(self, column):
        row = max(r for r in range(ROWS) if self.board[r, column] == 0)
        self.board[row, column] = self.player
        self.moves.append(Move(self.player, column, row, len(self.moves)))
        if self.wins(row, column):
            self.winner = self.player
        self.player = -self.player

    def wins(self, row, col):
        who = self.board[row, col]
        for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
            run = 1
            for sign in (1, -1):
                r, c = row + sign * dr, col + sign * dc
                while 0 <= r < ROWS and 0 <= c < COLS and self.board[r, c] == who:
                    run += 1
                    r, c = r + sign * dr, c + sign * dc
            if run >= 4:
                return True
        return False

    @property
    def over(self):
        return self.winner != 0 or len(self.moves) == ROWS * COLS

    def planes(self):
        """As seen by the player who has just moved."""
        me = -self.player
        return np.stack([self.board == me, self.board == -me]).astype(np.float32)


class ValueNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(2 * ROWS * COLS, 192), nn.ReLU(),
                                 nn.Linear(192, 128), nn.ReLU(), nn.Linear(128, 1), nn.Tanh())

    def forward(self, x):
        return self.net(x).squeeze(-1)


class SelfPlay:
    def __init__(self, net, epsilon):
        self.net, self.epsilon = net, epsilon

    @torch.no_grad()
    def choose(self, game):
        columns, planes = game.legal(), []
        for c in columns:
            trial = copy.deepcopy(game)  # <<
            trial.play(c)
            if trial.winner:
                return c
            planes.append(trial.planes())
        if random.random() < self.epsilon:
            return random.choice(columns)
        values = self.net(torch.from_numpy(np.stack(planes)))
        return columns[int(values.argmax())]

    def game(self):
        g, seen = Game(), []
        while not g.over:
            g.play(self.choose(g))  # <<
            seen.append((g.planes(), -g.player))
        return [(p, float(g.winner * who)) for p, who in seen], g.winner


def main(iterations=250, games=8, batches=10, batch=128):
    random.seed(3)
    torch.manual_seed(3)
    net = ValueNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    memory, tic = [], time.time()
    for it in range(iterations):
        player = SelfPlay(net, epsilon=max(0.1, 0.5 - it * 0.01))
        wins, length = {1: 0, -1: 0, 0: 0}, 0
        for _ in range(games):
            samples, winner = player.game()  # <<
            wins[winner] += 1
            length += len(samples)
            memory += samples
        memory = memory[-20_000:]
        total = 0.0
        for _ in range(batches):
            rows = random.choices(memory, k=batch)
            x = torch.from_numpy(np.stack([r[0] for r in rows]))
            z = torch.tensor([r[1] for r in rows])
            loss = (net(x) - z).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        if it % 5 == 0:
            print(f"iteration {it:3d} loss {total / batches:.3f} first/second/draw {wins[1]}/{wins[-1]}/{wins[0]} "
                  f"length {length / games:.1f}  {time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
