"""Loops over rows as one operation: the same values, gradients, errors and draws, or the loop as it is.

Modules: flatout.edits.cures.rows.row_aliases, flatout.edits.cures.rows.row_bodies, flatout.edits.cures.rows.row_code,
flatout.edits.cures.rows.row_comprehensions, flatout.edits.cures.rows.row_loops, flatout.edits.cures.rows.row_names,
flatout.edits.cures.rows.row_results.
"""

import random
from textwrap import dedent, indent

import numpy
import pytest
import torch
from tests.unit.edits.scripts import edited

HEAD = """\
import math
import torch
import torch.nn.functional as F
from torch import nn

EPS = 1e-8
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

def dist(a, b):
    '''Squared distances.'''
    d = a - b
    return (d * d).sum(-1)
"""

# Each is the body of a function of (feats, bank, labels, out, boxes, k).
DONE = {
    "k-means": """
        assign = torch.zeros(len(feats), dtype=torch.long)
        for i in range(len(feats)):
            assign[i] = ((bank - feats[i]) ** 2).sum(1).argmin()  # <<
        return assign
        """,
    "k-means as a whole": """
        centroids = feats[torch.randperm(len(feats))[:k]].clone()
        for _ in range(3):
            assign = torch.zeros(len(feats), dtype=torch.long)
            for i in range(feats.shape[0]):
                assign[i] = torch.argmin(torch.norm(feats[i] - centroids, dim=1))  # <<
            for c in range(k):
                members = feats[assign == c]
                if len(members) > 0:
                    centroids[c] = members.mean(0)
        return assign, centroids
        """,
    "k-means by a function": """
        def centres(feats, assign, k):
            new = torch.zeros(k, feats.shape[1], dtype=feats.dtype)
            for c in range(k):
                if (assign == c).any():
                    new[c] = feats[assign == c].mean(0)
            return new

        centroids = bank[:k].clone()
        for _ in range(2):
            assign = torch.zeros(len(feats), dtype=torch.long)
            for i, f in enumerate(feats):
                assign[i] = (centroids - f).norm(dim=1).argmin()  # <<
            centroids = centres(feats.detach(), assign, k)
        return assign, centroids
        """,
    "item": """
        found = torch.empty(feats.size(0), dtype=torch.int64)
        for i in range(feats.size(0)):
            d = (feats[i].unsqueeze(0) - bank).pow(2).sum(dim=1)
            found[i] = d.argmin().item()  # <<
        return found
        """,
    "list of numbers": """
        nearest = []
        for row in feats:
            nearest.append((bank - row).abs().sum(1).min().item())  # <<
        return nearest, sum(nearest) / max(1, len(nearest))
        """,
    "int of argmin": """
        found, far = [], []
        for f in feats:
            d = dist(f, bank)
            found.append(int(d.argmin()))  # <<
            far.append(float(d.detach().max()))
        return found, far
        """,
    "normalised": """
        normed = torch.zeros_like(feats)
        for i, row in enumerate(feats):
            normed[i] = row / (row.norm() + EPS)  # <<
        normed *= 2
        normed /= 3
        return normed
        """,
    "normalised in place": """
        x = feats.clone()
        for i in range(x.shape[0]):
            x[i] = (x[i] - x[i].mean()) / (x[i].std() + 1e-6)  # <<
        return x
        """,
    "losses": """
        losses = []
        for i in range(len(out)):
            losses.append(F.cross_entropy(out[i:i+1], labels[i:i+1]))  # <<
        return torch.stack(losses).mean()
        """,
    "losses of a module": """
        losses = []
        for o, t in zip(out, labels):
            losses.append(criterion(o.unsqueeze(0), t.unsqueeze(0)))  # <<
        return sum(losses) / len(losses)
        """,
    "losses by enumerate and zip": """
        total = torch.zeros(len(out))
        for i, (o, t) in enumerate(zip(out, labels)):
            logp = F.log_softmax(o, dim=0)
            total[i] = -logp[t]  # <<
        return total
        """,
    "picked by label": """
        p = out.softmax(1)
        picked = []
        for i in range(len(p)):
            picked.append(p[i, labels[i]] + math.log(2.0))  # <<
        return torch.stack(picked)
        """,
    "cosines with a bank": """
        n = feats.shape[0]
        sims = torch.zeros(n, len(bank))
        for i in range(n):
            sims[i] = F.cosine_similarity(feats[i:i + 1], bank)  # <<
        return sims
        """,
    "hard negatives": """
        hard, at = torch.zeros(len(feats)), torch.zeros(len(feats), dtype=torch.long)
        for i in range(len(feats)):
            d = (feats - feats[i]).pow(2).sum(1)
            d = d.masked_fill(labels == labels[i], float("inf"))
            hard[i] = d.min()  # <<
            at[i] = d.argmin()
        return hard, at
        """,
    "all but itself": """
        ids = torch.arange(len(feats))
        nearest = torch.zeros(len(feats), dtype=torch.long)
        for i, row in enumerate(feats):
            d = torch.where(ids == i, math.inf, (feats - row).norm(dim=1))
            nearest[i] = d.argmin()  # <<
        return nearest
        """,
    "iou": """
        ious = torch.empty(len(boxes))
        ref = boxes[:1].clone()
        for i in range(len(boxes)):
            lt = torch.maximum(boxes[i, :2], ref[0, :2])
            rb = torch.minimum(boxes[i, 2:], ref[0, 2:])
            wh = (rb - lt).clamp(min=0)
            inter = wh[0] * wh[1]
            area = (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])
            ious[i] = inter / (area + EPS)  # <<
        return ious
        """,
    "one pair of loops": """
        d = torch.zeros(len(feats), len(bank))
        for i in range(len(feats)):
            for j in range(len(bank)):
                d[i, j] = (feats[i] - bank[j]).norm()  # <<
        return d
        """,
    "top k": """
        m = min(2, len(bank))
        scores = []
        for row in feats:
            s = bank @ row
            scores.append(s.topk(m).values.mean())  # <<
        return torch.stack(scores) if scores else None
        """,
    "picked from a row": """
        picked = torch.zeros(len(out))
        for i in range(len(out)):
            picked[i] = out[i][labels[i]] + bank[labels[i]].sum()  # <<
        return picked
        """,
    "targets": """
        targets = torch.full((len(labels), 4), 0.1)
        for i in range(len(labels)):
            targets[i, :] = (torch.arange(4) == labels[i]).float() * 0.9 + 0.025  # <<
        return targets
        """,
    "without gradients": """
        ranks = []
        with torch.no_grad():
            for o, t in zip(out, labels):
                ranks.append((o > o[t]).sum().item())  # <<
        return ranks
        """,
    "wider array": """
        best = torch.zeros(len(feats) + 2)
        for i in range(len(feats)):
            best[i] = bank.mv(feats[i]).max()  # <<
        return best
        """,
    "some of the rows": """
        found = []
        for i in range(k):
            a, b = out[i], bank[i]
            found.append(a.sum() * b.mean())  # <<
        return torch.cat([torch.stack(found), feats.sum(1)])
        """,
    "a sum": """
        total, num = 0.0, 0
        for i in range(len(out)):
            total += F.mse_loss(out[i, :2], boxes[i][:2])  # <<
            num += (out[i].argmax() == labels[i]).item()
        return total / max(1, len(out)), num
        """,
    "counted": """
        seen, right, weight = torch.zeros(1), 0, 0.1
        for o, t in zip(out, labels):
            seen += 1
            right += (o.argmax() == t).item()  # <<
            weight += 0.1
        return right, seen, weight
        """,
    "a sum in a tensor": """
        total = torch.zeros(5)
        for _ in range(2):
            for row in feats:
                total += row.softmax(0)  # <<
        return total
        """,
    "a list of them": """
        normed = torch.stack([row / row.norm().clamp(min=EPS) for row in feats])
        picked = torch.stack([out[i][labels[i]] for i in range(len(out))])
        picked = picked.mul_(2.0)  # <<
        return normed, picked, out
        """,
    "a list of numbers at once": """
        nearest = [dist(f, bank).argmin().item() for f in feats]
        far = max(float((bank - f).detach().abs().max()) for f in feats)  # <<
        return nearest, far
        """,
    "scaled to one": """
        scaled = []
        for i, row in enumerate(feats):
            row = row - row.min()
            row = row / (row.max() + EPS)
            scaled.append(row)  # <<
        return torch.stack(scaled)
        """,
    "a tensor of numbers": """
        return torch.tensor([torch.argmin(torch.norm(bank - f, dim=1)) for f in feats])  # <<
        """,
    "a sum of them": """
        loss = sum(F.cross_entropy(out[i:i + 1], labels[i:i + 1], reduction="sum") for i in range(len(out)))  # <<
        return loss / max(1, len(out))
        """,
    "a list in a call": """
        rows = [o for o in out]
        return torch.tensor(sorted([(o[0] * t).item() for o, t in zip(out, labels)])), len(rows)  # <<
        """,
    "bytes": """
        images = (feats.abs() * 20).clamp(max=255).to(torch.uint8)
        stats = torch.zeros(len(images), 2)
        for i, image in enumerate(images):
            scaled = image.float() / 255.0
            stats[i, 0] = scaled.mean()  # <<
        for i, image in enumerate(images):
            stats[i, 1] = image.to(torch.float64).std()
        return stats
        """,
    "a method": """
        class Bank:
            def __init__(self):
                self.bank = bank.clone()

            @torch.no_grad()
            def score(self, feats):
                scores = torch.zeros(len(feats))
                for i in range(len(feats)):
                    scores[i] = (self.bank * feats[i]).sum(dim=-1).max()  # <<
                return scores

        return Bank().score(feats)
        """,
}
ARGUMENTS = "feats, bank, labels, out, boxes, k"


def script(body):
    return f"{HEAD}\ndef run({ARGUMENTS}):\n{indent(dedent(body), '    ')}"


def made(folder, body):
    return edited(folder, "whole-rows", script(body))


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Return the scripts as they are changed."""
    return {name: made(tmp_path_factory.mktemp("script"), body) for name, body in DONE.items()}


def inputs(num=7, seed=0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    feats, bank, out = (torch.randn(rows, of, generator=draw, dtype=dtype) for rows, of in ((num, 5), (6, 5), (num, 4)))
    labels = torch.randint(0, 4, (num,), generator=draw)
    corner = torch.rand(num, 2, generator=draw, dtype=dtype)
    boxes = torch.cat([corner, corner + torch.rand(num, 2, generator=draw, dtype=dtype)], 1)
    return [feats.requires_grad_(), bank.requires_grad_(), labels, out.requires_grad_(), boxes, min(3, num)]


def outcome(text, given):
    """Return what a script gives or raises, the gradients of what it is given, and the state of torch's draws."""
    torch.manual_seed(3)
    space = {}
    exec(compile(text, "train.py", "exec"), space)
    try:
        found = space["run"](*given)
        parts = list(found) if isinstance(found, tuple) else [found]
        trained = [each for each in parts if isinstance(each, torch.Tensor) and each.requires_grad]
        leaves = [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]
        grads = torch.autograd.grad(sum(each.sum() for each in trained), leaves, allow_unused=True) if trained else []
    except Exception as error:
        return type(error), torch.get_rng_state()
    return parts, list(grads), torch.get_rng_state()


def same(one, other):
    assert len(one) == len(other)
    if isinstance(one[0], type):
        assert one[0] is other[0]
    else:
        for mine, yours in zip([*one[0], *one[1]], [*other[0], *other[1]], strict=True):
            alike(mine, yours)
    assert torch.equal(one[-1], other[-1])


def alike(mine, yours):
    assert type(mine) is type(yours)
    if isinstance(mine, torch.Tensor):
        torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-6, equal_nan=True)
        assert mine.requires_grad == yours.requires_grad
    elif isinstance(mine, list):
        assert len(mine) == len(yours)
        for one, other in zip(mine, yours, strict=True):
            alike(one, other)
    else:
        assert mine is yours is None or mine == pytest.approx(yours, rel=1e-5, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("name", DONE)
def test_the_loop_is_done_at_once(changed, name):
    after, left = changed[name]
    assert left == ""
    assert "torch.vmap(" in after
    kept = {line.strip() for line in after.split("\n")}
    was = [line.strip().replace("  # <<", "") for line in script(DONE[name]).split("\n")]
    assert all(line in kept for line in was if " for " not in line)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num", [0, 1, 2, 7, 70])
@pytest.mark.parametrize("name", DONE)
def test_values_gradients_and_draws_are_the_same(changed, name, num, dtype):
    same(outcome(script(DONE[name]), inputs(num, num, dtype)), outcome(changed[name][0], inputs(num, num, dtype)))


@pytest.mark.parametrize("name", DONE)
def test_what_is_given_in_parts_is_the_same(changed, name):
    after = changed[name][0].replace("2**20", "64")
    same(outcome(script(DONE[name]), inputs(50)), outcome(after, inputs(50)))


def test_classes_made_from_tensors_go_through_the_loop(changed):
    class Named(torch.Tensor):
        pass

    given = [each.detach().as_subclass(Named) if isinstance(each, torch.Tensor) else each for each in inputs()]
    body = "normalised"
    ours, theirs = (outcome(text, given) for text in (changed[body][0], script(DONE[body])))
    assert type(ours[0][0]) is type(theirs[0][0]) is Named
    torch.testing.assert_close(ours[0][0], theirs[0][0])


def test_torch_does_all_rows_at_once(changed, monkeypatch):
    calls = []
    vmap = torch.vmap
    monkeypatch.setattr(torch, "vmap", lambda *given, **named: calls.append(named) or vmap(*given, **named))
    for name, (after, _) in changed.items():
        calls.clear()
        outcome(after, inputs())
        assert calls and all(each["chunk_size"] > 0 for each in calls), name


@pytest.mark.parametrize("name", DONE)
def test_other_things_than_tensors_go_through_the_loop(changed, name):
    def plain(*kinds):
        with torch.no_grad():
            given = [each.detach() if isinstance(each, torch.Tensor) else each for each in inputs()]
            return [kind(each) if kind else each for kind, each in zip(kinds, given, strict=True)]

    ragged = [torch.ones(5)] * 2 + [torch.ones(1)]
    for kinds in (
        (list, None, None, None, None, None),
        (lambda _: ragged, None, None, None, None, None),
        (torch.Tensor.numpy, torch.Tensor.numpy, None, None, None, None),
        (None, None, list, list, list, None),
        (None, None, None, lambda out: out[:3], None, lambda _: 5),
        (None, lambda bank: bank[:2], lambda labels: labels[:3], None, None, lambda _: -1),
        (None, None, None, None, lambda boxes: boxes.tolist(), lambda _: 0),
        (None, None, None, lambda out: (row for row in out), None, None),
        (lambda feats: feats[0], None, None, lambda out: out[0], None, None),
    ):
        same(outcome(script(DONE[name]), plain(*kinds)), outcome(changed[name][0], plain(*kinds)))


LEFT = {
    "what the turn has written": """
        one, two = torch.zeros(len(feats)), torch.zeros(len(feats))
        for i in range(len(feats)):
            one[i] = feats[i].sum()
            two[i] = one[i] * 2  # <<
        return two
        """,
    "rows and columns of one array": """
        d = torch.ones(7, 7)
        for i in range(7):
            for j in range(len(d)):
                d[i, j] = d[j].sum()  # <<
        return d
        """,
    "one name for rows and all": """
        found, x = [], feats
        for _ in range(2):
            for x in x:
                found.append(x.sum().item())  # <<
        return found
        """,
    "a row that is none any more": """
        found = torch.zeros(len(feats))
        for i, row in enumerate(feats):
            row = row * 2
            found[i] = (feats[i] - row).sum()  # <<
        return found
        """,
    "a number alone": """
        num = 0
        for row in feats:
            num += 1  # <<
        return num
        """,
    "where it is so": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = torch.where(feats[i] > 0)[0].sum()  # <<
        return found
        """,
    "a function that has it": """
        x = torch.zeros(len(feats))
        def held():
            return x
        y = held()
        for i in range(len(x)):
            x[i] = feats[i].sum() + y.sum()  # <<
        return x
        """,
    "other memory for a name": """
        x, y = torch.zeros(len(feats)), torch.zeros(len(feats))
        y.data = x
        for i in range(len(x)):
            x[i] = feats[i].sum() + y.sum()  # <<
        return x
        """,
    "the memory of another": """
        x, y = torch.zeros(len(feats)), torch.zeros(len(feats))
        y.set_(x)
        for i in range(len(x)):
            x[i] = feats[i].sum() + y.sum()  # <<
        return x
        """,
    "handed back": """
        x = torch.zeros(len(feats))
        y = through(x)
        for i in range(len(x)):
            x[i] = feats[i].sum() + y.sum()  # <<
        return x
        """,
    "a list that others see": """
        global SEEN
        SEEN = []
        for row in feats:
            SEEN.append(row.sum())  # <<
        return torch.stack(SEEN)
        """,
    "a property": """
        class Rows:
            @property
            def rows(self):
                print("asked")
                return feats

            def sums(self):
                return [row.sum().item() for row in self.rows]  # <<

        return Rows().sums()
        """,
    "two names for one array": """
        one = two = torch.zeros(len(feats))
        for i in range(len(feats)):
            one[i] = feats[i].sum() + two.sum()  # <<
        return one
        """,
    "a sum that others know": """
        total = torch.zeros(5)
        KEPTS = [total]
        for row in feats:
            total += row * KEPTS[0].sum()  # <<
        return total
        """,
    "a sum of something given": """
        for row in feats:
            boxes += row.sum()  # <<
        return boxes
        """,
    "a sum that is read": """
        total = torch.zeros(5)
        for row in feats:
            total += row * total.sum()  # <<
        return total
        """,
    "a list in a list": """
        return [[(row * k).sum().item() for row in feats] for k in range(3)]  # <<
        """,
    "a list with a choice": """
        return [row.sum().item() for row in feats if row[0] > 0]  # <<
        """,
    "a list of lists": """
        return [(row - other).sum().item() for row in feats for other in bank]  # <<
        """,
    "a list of tensors": """
        found = [row * 2 for row in feats]  # <<
        found[0].add_(1)
        return found[0], found[1]
        """,
    "a list of numbers in it": """
        return [row.sum().item() * i for i, row in enumerate(feats)]  # <<
        """,
    "carried": """
        mean, all_ = torch.zeros(5), torch.zeros(len(feats))
        for i in range(len(feats)):
            mean = 0.9 * mean + 0.1 * feats[i]
            all_[i] = mean.sum()  # <<
        return all_
        """,
    "read before": """
        last, found = feats[0], torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = (feats[i] - last).sum()  # <<
            last = feats[i]
        return found
        """,
    "reads what it writes": """
        x = feats.detach().clone()
        for i in range(len(x)):
            x[i] = x[i] - x.mean(0)  # <<
        return x
        """,
    "another name for it": """
        x = feats.detach().clone()
        y = x
        for i in range(len(x)):
            x[i] = x[i] - y[0]  # <<
        return x
        """,
    "a part of it": """
        x = torch.zeros(len(feats), 5)
        y = x[1:]
        for i in range(len(y)):
            y[i] = x[i] + 1 + feats[i]  # <<
        return x
        """,
    "the smaller of it": """
        x = torch.zeros(len(feats))
        y = min(x, key=lambda part: part) if len(feats) > 9 else x
        for i in range(len(x)):
            x[i] = y[i - i] + feats[i].sum()  # <<
        return x
        """,
    "a view of it": """
        x = feats.detach().clone()
        y = x.view(-1, 5)[1:]
        for i in range(len(y)):
            x[i] = x[i] + y[i]  # <<
        return x
        """,
    "a view in a list": """
        x, held = torch.zeros(len(feats)), []
        held.append(x)
        y = held[0]
        for i in range(len(x)):
            x[i] = feats[i].sum() + y.sum()  # <<
        return x
        """,
    "kept by others": """
        x = torch.zeros(len(feats))
        remember(x)
        for i in range(len(x)):
            x[i] = feats[i].sum() + KEPT.sum()  # <<
        return x
        """,
    "given": """
        for i in range(len(out)):
            out[i] = out[i] * bank.sum()  # <<
        return out
        """,
    "a draw": """
        noisy = torch.zeros_like(feats)
        for i in range(len(feats)):
            noisy[i] = feats[i] + torch.randn(5)  # <<
        return noisy
        """,
    "dropout": """
        found = []
        for row in feats:
            found.append(F.dropout(row, 0.5).sum())  # <<
        return torch.stack(found)
        """,
    "a print": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            print(i)
            found[i] = feats[i].sum()  # <<
        return found
        """,
    "a branch": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            if labels[i] == 0:
                found[i] = feats[i].sum()  # <<
        return found
        """,
    "a choice": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = feats[i].sum() if labels[i] else feats[i].max()  # <<
        return found
        """,
    "a break": """
        found = []
        for row in feats:
            found.append(row.sum())  # <<
            if len(found) == 3:
                break
        return torch.stack(found)
        """,
    "a mask": """
        found = []
        for i in range(len(feats)):
            d = (feats - feats[i]).norm(dim=1)
            same_ = labels == labels[i]
            found.append(d[same_].max())  # <<
        return torch.stack(found)
        """,
    "a value asked for": """
        found = []
        for row in feats:
            found.append(row * row.sum().item())  # <<
        return torch.stack(found)
        """,
    "the longest": """
        found = []
        for i in range(len(feats)):
            found.append(feats[i][:labels[i]].sum())  # <<
        return torch.stack(found)
        """,
    "the variable behind": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = feats[i].sum()  # <<
        return found, i
        """,
    "a name behind": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            s = feats[i].sum()
            found[i] = s  # <<
        return found * s
        """,
    "a name in the next turn": """
        found, s = torch.zeros(len(feats)), 1.0
        for _ in range(2):
            feats = feats * s
            for i in range(len(feats)):
                s = feats[i].sum()
                found[i] = s  # <<
        return found
        """,
    "a name of another function": """
        def inner():
            return s
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            s = feats[i].sum()
            found[i] = s  # <<
        return found, inner()
        """,
    "items used one by one": """
        found = []
        for row in feats:
            found.append(row.sum())  # <<
        found[0] = found[0] * 2
        return torch.stack(found)
        """,
    "list read": """
        found = []
        for row in feats:
            found.append(row.sum() * len(found))  # <<
        return torch.stack(found)
        """,
    "a function with effects": """
        found = []
        for row in feats:
            found.append(noted(row))  # <<
        return torch.stack(found)
        """,
    "a module": """
        found = []
        model = nn.Sequential(nn.Linear(5, 2), nn.Dropout())
        for row in feats:
            found.append(model(row))  # <<
        return torch.stack(found)
        """,
    "in place": """
        found = []
        for row in feats.detach().clone():
            found.append(row.mul_(2).sum())  # <<
        return torch.stack(found)
        """,
    "the number itself": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = feats[i].sum() * i  # <<
        return found
        """,
    "neighbours": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = (feats[i] - feats[i - 1]).sum()  # <<
        return found
        """,
    "backwards": """
        found = torch.zeros(len(feats))
        for i in range(len(feats) - 1, -1, -1):
            found[i] = feats[i].sum()  # <<
        return found
        """,
    "else": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = feats[i].sum()  # <<
        else:
            found += 1
        return found
        """,
    "an error that is caught": """
        found = torch.zeros(len(feats))
        try:
            for i in range(len(feats)):
                found[i] = feats[i].sum() + bank[i].sum()  # <<
        except IndexError:
            pass
        return found
        """,
    "a list of two": """
        found = [1]
        for i in range(len(feats)):
            found[i] = feats[i].sum()  # <<
        return found[0]
        """,
    "twice to one place": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = feats[i].sum()
            found[i] = feats[i].max()  # <<
        return found
        """,
    "nothing of the row": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = bank.sum()  # <<
        return found
        """,
    "only its shape": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = feats[i].shape[0]  # <<
        return found
        """,
    "locals": """
        found = torch.zeros(len(feats))
        for i in range(len(feats)):
            found[i] = feats[i].sum()  # <<
        return found, sorted(locals())
        """,
}
MORE = """
KEPT, NOTES = torch.zeros(1), []

def remember(x):
    global KEPT
    KEPT = x

def through(x):
    return x.view(-1)

def noted(row):
    NOTES.append(row)
    return row.sum()
"""


@pytest.mark.parametrize("name", LEFT)
def test_what_may_differ_is_left(tmp_path, name):
    after, left = edited(tmp_path, "whole-rows", script(LEFT[name]).replace("def run(", f"{MORE}\ndef run("))
    assert after == "" and left not in ("", "unplaced")


@pytest.mark.parametrize(
    "more",
    [
        "class Bank:\n    def __rsub__(self, other):\n        return other",
        "class Mine(torch.Tensor):\n    pass",
        "scripted = torch.jit.script(dist)",
        "row_norm = eval('dist')",
    ],
)
def test_what_elsewhere_in_the_script_may_make_it_differ(tmp_path, more):
    text = script(DONE["k-means"]).replace("def run(", f"{more}\n\ndef run(")
    after, left = edited(tmp_path, "whole-rows", text)
    assert after == "" and left


@pytest.mark.parametrize("name", ["k-means", "losses", "losses of a module", "cosines with a bank", "top k", "a sum"])
@pytest.mark.parametrize(
    "around", ["torch.inference_mode()", "torch.autocast('cpu', torch.bfloat16)", "torch.no_grad()"]
)
def test_in_contexts_of_torch(changed, name, around):
    def inside(text):
        return (
            text.replace("def run(", "def plain(")
            + f"\ndef run(*given):\n    with {around}:\n        return plain(*given)\n"
        )

    ours, theirs = (outcome(inside(text), inputs()) for text in (changed[name][0], script(DONE[name])))
    assert len(ours) == len(theirs) == 3
    for one, other in zip(_tensors(ours[0]), _tensors(theirs[0]), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def _tensors(parts):
    return [torch.as_tensor(each).float() for each in parts]


def test_attributes_that_code_answers(tmp_path):
    more = "class Settings(dict):\n    def __getattr__(self, name):\n        print(name)\n        return self[name]"
    text = script(DONE["k-means"]).replace("def run(", f"{more}\n\ndef run(")
    assert "torch.vmap(" in edited(tmp_path, "whole-rows", text)[0]
    after, left = edited(tmp_path, "whole-rows", text.replace("(bank - feats[i])", "(k.bank - feats[i])"))
    assert after == "" and "k.bank" in left


def test_a_decorated_function_is_left(tmp_path):
    text = script(DONE["k-means"]).replace("def run(", "@torch.compile\ndef run(")
    after, left = edited(tmp_path, "whole-rows", text)
    assert after == "" and "torch.compile" in left


def test_a_loop_in_a_function_that_the_line_calls(tmp_path):
    body = DONE["k-means"].replace("  # <<", "")
    text = f"{script(body)}\ndef main(given):\n    found = run(*given)  # <<\n    return found\n"
    after, left = edited(tmp_path, "whole-rows", text)
    assert left == "" and after.count("torch.vmap(") == 1
    same(outcome(text, inputs()), outcome(after, inputs()))


def test_a_loop_of_the_module(tmp_path):
    text = """
    import random
    import torch as th

    th.manual_seed(0)
    X, C = th.randn(6, 3), th.randn(2, 3)
    near = th.zeros(6)
    for number in range(len(X)):
        near[number] = (X[number] - C).norm(dim=1).min()  # <<
    """
    after, left = edited(tmp_path, "whole-rows", text)
    assert left == "" and "import torch\n" not in after and "th.vmap(" in after
    random.seed(0)
    spaces = [{}, {}]
    for code, space in zip((dedent(text), after), spaces, strict=True):
        exec(compile(code, "train.py", "exec"), space)
    torch.testing.assert_close(spaces[0]["near"], spaces[1]["near"])


@pytest.mark.parametrize("kind", ["float", "int", "bool", "np.float32"])
@pytest.mark.parametrize("value", ["(feats[i] - bank).norm(dim=1).min().item()", "float(bank.mv(feats[i]).argmax())"])
def test_an_array_of_numpy_is_filled_with_numbers(tmp_path, kind, value):
    text = f"""
    import numpy as np
    import torch

    def run(feats, bank):
        near = np.zeros(len(feats) + 1, dtype={kind})
        for i in range(len(feats)):
            near[i] = {value}  # <<
        return near
    """
    after, left = edited(tmp_path, "whole-rows", text)
    assert left == "" and ".tolist()" in after
    spaces = [{}, {}]
    for code, space in zip((dedent(text), after), spaces, strict=True):
        exec(compile(code, "train.py", "exec"), space)
    for num in (0, 1, 9):
        one, other = (space["run"](*[each.detach() for each in inputs(num)[:2]]) for space in spaces)
        assert one.dtype == other.dtype and numpy.allclose(one, other, rtol=1e-5)


def test_an_array_of_numpy_takes_no_tensors(tmp_path):
    text = """
    import numpy as np
    import torch

    def run(feats, bank):
        near = np.zeros(len(feats))
        for i in range(len(feats)):
            near[i] = (feats[i] - bank).norm(dim=1).min()  # <<
        return near
    """
    after, left = edited(tmp_path, "whole-rows", text)
    assert after == "" and "near" in left
