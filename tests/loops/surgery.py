"""Models that are frozen, pruned, widened, normalized, scripted, compiled and given other parts while they train."""

import warnings

import torch
from torch import nn
from torch.nn.utils import parametrize, prune

from tests.loops.registry import Convolutions, images, loop, mlp, rows, state, step


class LowRank(nn.Module):
    """A frozen layer with a small one beside it."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


@loop
def low_rank_parts_put_in_and_merged():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for number in range(12):
        if number == 4:
            model[0], model[2] = LowRank(model[0]), LowRank(model[2])
            optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], 1e-2)
        if number == 8:
            for place in (0, 2):
                part = model[place]
                part.base.weight.data += part.up.data @ part.down.data
                model[place] = part.base.requires_grad_(True)
            optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        losses.append(step(model, optimizer))
    return losses, state(model)


@loop
def unfrozen_layer_by_layer():
    model = Convolutions()
    model.body.requires_grad_(False)
    optimizer, losses = torch.optim.SGD(model.head.parameters(), 0.1), []
    for number in range(9):
        if number in (3, 6):
            part = model.body[4 if number == 3 else 0].requires_grad_(True)
            optimizer.add_param_group({"params": part.parameters(), "lr": 0.01})
        losses.append(step(model, optimizer, images()))
    return losses, state(model)


@loop
def the_head_is_swapped_for_more_classes():
    model = Convolutions()
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-2), []
    for number in range(9):
        if number == 4:
            old, model.head = model.head, nn.Linear(64, 5)
            with torch.no_grad():
                model.head.weight[:3], model.head.bias[:3] = old.weight, old.bias
            optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        losses.append(step(model, optimizer, images()))
    return losses, state(model)


@loop
def pruned_twice_and_made_permanent():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for number in range(12):
        if number in (3, 6):
            prune.l1_unstructured(model[0], "weight", amount=0.3)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if number == 9:
            prune.remove(model[0], "weight")
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses.append(step(model, optimizer))
    return losses, state(model)


@loop
def parametrizations_come_and_go():
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

    model = nn.Linear(6, 6)
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for number in range(12):
        if number == 4:
            parametrize.register_parametrization(model, "weight", Symmetric())
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if number == 8:
            parametrize.remove_parametrizations(model, "weight")
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses.append(step(model, optimizer))
    return losses, state(model)


@loop
def norms_of_both_kinds():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = nn.utils.weight_norm(nn.Linear(6, 8))
    model = nn.Sequential(old, nn.ReLU(), nn.utils.spectral_norm(nn.Linear(8, 8)), nn.Linear(8, 3))
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for number in range(9):
        if number == 6:
            nn.utils.remove_weight_norm(model[0])
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses.append(step(model, optimizer))
    return losses, state(model)


@loop
def another_class_from_the_middle_on():
    class Doubled(Convolutions):
        def forward(self, x):
            return 2 * super().forward(x)

    model = Convolutions()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.05), []
    for number in range(9):
        if number == 5:
            model.__class__ = Doubled
        losses.append(step(model, optimizer, images()))
    return losses, state(model)


@loop
def forward_is_replaced_on_the_instance():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    plain = model.forward
    for number in range(9):
        if number == 5:
            model.forward = lambda x: plain(x) * 0.5
        losses.append(step(model, optimizer))
    return losses, state(model)


@loop
def hooks_inside_see_and_change():
    model, seen, slopes = Convolutions(), [], []
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.05), []
    model.body[4].register_forward_hook(lambda module, args, output: seen.append(output.detach().float().mean()))
    model.body[0].register_full_backward_hook(lambda module, inner, outer: slopes.append(outer[0].sum()))
    model.head.register_forward_pre_hook(lambda module, args: (args[0] * 0.5,))
    losses += [step(model, optimizer, images()) for _ in range(8)]
    return losses, seen, slopes, state(model)


@loop
def compiled_by_the_script_half_way():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses, call = torch.optim.SGD(model.parameters(), 0.1), [], model
    for number in range(9):
        if number == 4:
            call = torch.compile(model, backend="eager")
        if number == 7:
            model.compile(backend="eager")
            call = model
        losses.append(step(call, optimizer))
    return losses, state(model)


@loop
def traced_for_validation_and_scripted_to_go_on():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses, seen = torch.optim.SGD(model.parameters(), 0.1), [], []
    for number in range(9):
        losses.append(step(model, optimizer))
        if number in (4, 6):
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                x, _ = rows()
                seen.append(torch.jit.trace(model, x)(x))
                if number == 6:
                    model = torch.jit.script(model)
                    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return losses, seen, state(model)


@loop
def weights_tied_and_shared():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside, self.outside = nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)
            self.outside.weight = self.inside.weight
            self.middle = nn.Linear(6, 6)

        def forward(self, x):
            return self.outside(self.middle(self.middle(self.inside(x)).tanh()))

    model = Tied()
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for number in range(9):
        if number == 6:
            model.outside.weight = nn.Parameter(model.inside.weight.detach().clone())
            optimizer.add_param_group({"params": [model.outside.weight]})
        x = torch.randint(0, 9, (12,))
        losses.append(step(model, optimizer, (x, (x + 1) % 9)))
    return losses, state(model)


@loop
def a_vector_of_all_weights_is_clipped():
    model = Convolutions()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), []
    for number in range(9):
        losses.append(step(model, optimizer, images()))
        if number == 5:
            vector = nn.utils.parameters_to_vector(model.parameters()).detach()
            nn.utils.vector_to_parameters(vector * min(1.0, 2.0 / float(vector.norm())), model.parameters())
    return losses, state(model)


@loop
def groups_and_rates_change():
    model = mlp()
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.1), []
    for number in range(10):
        if number == 4:
            optimizer.param_groups[0]["weight_decay"] = 0.0
            optimizer.param_groups[0]["betas"] = (0.5, 0.9)
        if number == 6:
            optimizer.state.clear()
        if number == 8:
            optimizer.param_groups[0]["params"] = optimizer.param_groups[0]["params"][:2]
        losses.append(step(model, optimizer))
    return losses, state(model)
