"""What lies between epochs of a training whose epochs take long, and what only looks like validation."""

import pytest

from flatout.analysis.breakdown import account
from flatout.rules.core.find import find

pytestmark = pytest.mark.slow


def diagnosed(flatout, script):
    """Return the findings of a diagnosis that decides itself when it has seen enough, by their codes."""
    flatout.write(script)
    ended = flatout("diagnose", "train.py")
    assert ended.code == 0, ended.err
    return {found.code: found for found in find(ended.run, account(ended.run))}


LONG_EPOCHS = """
import random
import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)


class Triples(torch.utils.data.Dataset):
    def __init__(self, people, things, pairs):
        self.people, self.things = people, things
        self.known = [(random.randrange(people), random.randrange(things)) for _ in range(pairs)]
        self.others = [0] * pairs

    def __len__(self):
        return len(self.known)

    def __getitem__(self, number):
        person, thing = self.known[number]
        return person, thing, self.others[number]


def draw_others(triples):
    liked = set(triples.known)
    for number, (person, _) in enumerate(triples.known):
        other = random.randrange(triples.things)  # DRAWN
        while (person, other) in liked:
            other = random.randrange(triples.things)
        triples.others[number] = other


def main():
    triples = Triples(500, 900, 500_000)
    people, things = torch.nn.Embedding(500, 16), torch.nn.Embedding(900, 16)
    optimizer = torch.optim.Adagrad([*people.parameters(), *things.parameters()], lr=0.05)
    for epoch in range(5):
        draw_others(triples)
        for person, thing, other in DataLoader(triples, batch_size=32, shuffle=True):
            rows = people(person)
            loss = torch.relu(1 - (rows * things(thing)).sum(1) + (rows * things(other)).sum(1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
"""


@pytest.mark.full
def test_the_line_between_two_epochs_is_named_though_none_ends_in_time(flatout):
    found = diagnosed(flatout, LONG_EPOCHS)["EP004"]
    lines = LONG_EPOCHS.splitlines()
    assert found.location.function == "draw_others"
    drawing = next(number for number, text in enumerate(lines, 1) if text.endswith("# DRAWN"))
    assert abs(found.location.line - drawing) <= 2
    assert "in the deep run) is spent between epochs" in found.message


ACTING = """
import torch

torch.manual_seed(1)
torch.set_num_threads(1)


class Cart:
    def reset(self):
        self.state = torch.rand(6) - 0.5
        return self.state

    def push(self, force):
        drift = torch.roll(self.state, 1) * 0.1
        self.state = (0.9 * self.state + drift + 0.05 * (force - 1)).clamp(-2, 2)
        return self.state, -float(self.state.square().sum())


class Learner:
    def __init__(self):
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)
        self.cart = Cart()

    @torch.no_grad()
    def collect(self, length):
        seen, chosen, rewards = [], [], []
        state = self.cart.reset()
        for _ in range(length):
            action = int(torch.multinomial(torch.softmax(self.net(state.unsqueeze(0)), 1), 1))
            seen.append(state)
            chosen.append(action)
            state, reward = self.cart.push(action)
            rewards.append(reward)
        return torch.stack(seen), torch.tensor(chosen), torch.tensor(rewards)

    def learn(self, seen, chosen, rewards):
        weight = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for part in torch.arange(len(seen)).chunk(8):
            picked = torch.log_softmax(self.net(seen[part]), 1).gather(1, chosen[part, None]).squeeze(1)
            self.optimizer.zero_grad()
            (-picked * weight[part]).mean().backward()
            self.optimizer.step()


learner = Learner()
while True:
    learner.learn(*learner.collect(400))
"""


def test_collecting_what_the_next_steps_learn_from_is_no_validation(flatout):
    codes = diagnosed(flatout, ACTING)
    assert not {"EP001", "EP002"} & codes.keys()
    found = codes["EP007"]
    assert found.location.function.rpartition(".")[2] in ("collect", "push")
    assert "is given one row" in found.message
    assert set(found.fixes) <= {"compiled-python"}  # of numbers in Python; none of a loader


SHORT_LIVED = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Waves(TensorDataset):
    def __getitem__(self, at):
        wave, pitch = super().__getitem__(at)
        return sum(torch.fft.rfft(wave, n=512 + shift).abs()[:64] for shift in range(12)), pitch


def over(count):
    return DataLoader(Waves(torch.randn(count, 512), torch.rand(count)), batch_size=16, num_workers=4)


if __name__ == "__main__":
    net = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
    splits = {name: over(count) for name, count in (("train", 320), ("val", 96), ("test", 96))}
    for epoch in range(1000):
        for name, loader in splits.items():
            with torch.set_grad_enabled(name == "train"):
                for wave, pitch in loader:
                    loss = (net(wave).squeeze(1) - pitch).abs().mean()
                    if name == "train":
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
"""


def test_workers_that_live_for_an_epoch_are_the_scripts_own_and_named_once(flatout):
    codes = diagnosed(flatout, SHORT_LIVED)
    assert "of 3 loaders" in codes["IN009"].message
    assert "EP004" not in codes
