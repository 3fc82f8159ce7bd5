"""Models that are copied, averaged, pickled, stored and swapped for their copies."""

import copy
import io
import pickle

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

from tests.loops.registry import Convolutions, images, loop, mlp, rows, state, step


@loop
def best_of_a_parametrized_model():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3))
    optimizer, best, losses = torch.optim.Adam(model.parameters(), 1e-2), None, []
    for _ in range(9):
        losses.append(step(model, optimizer))
        if losses[-1] == min(losses):
            best = copy.deepcopy(model)
    x, _ = rows()
    return losses, model(x).detach(), best(x).detach()


@loop
def mean_teacher_of_a_parametrized_model():
    student = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3))
    teacher = copy.deepcopy(student)
    optimizer, losses = torch.optim.SGD(student.parameters(), 0.1), []
    for _ in range(9):
        x, y = rows()
        with torch.no_grad():
            goal = teacher(x)
        loss = cross_entropy(student(x), y) + mse_loss(student(x), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.lerp_(new, 0.1)
        if len(losses) == 5:
            teacher = copy.deepcopy(student)
        losses.append(loss.detach())
    return losses, state(student, teacher)


@loop
def averaged_weights_and_their_statistics():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    average, schedule, losses = AveragedModel(model), SWALR(optimizer, 0.05), []
    for number in range(10):
        losses.append(step(model, optimizer))
        if number > 4:
            average.update_parameters(model)
            schedule.step()
    update_bn([rows()[0] for _ in range(3)], average)
    return losses, state(model, average)


@loop
def exponential_average_made_by_dictionary():
    model = Convolutions()
    shadow = type(model).__new__(type(model))
    shadow.__dict__.update(model.__dict__)
    shadow._modules = copy.deepcopy(model._modules)
    optimizer, losses, seen = torch.optim.AdamW(model.parameters(), 1e-2), [], []
    for _ in range(8):
        losses.append(step(model, optimizer, images()))
        for mine, its in zip(shadow.parameters(), model.parameters(), strict=True):
            mine.data.mul_(0.8).add_(its.data, alpha=0.2)
        with torch.no_grad():
            seen.append(shadow(images()[0]).sum())
    return losses, seen, state(model, shadow)


@loop
def whole_models_through_pickle_in_the_middle():
    model = mlp()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for number in range(9):
        losses.append(step(model, optimizer))
        if number == 5:
            model = pickle.loads(pickle.dumps(model))
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return losses, state(model)


@loop
def a_file_of_the_whole_model_and_its_optimizer():
    model = Convolutions()
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for number in range(9):
        losses.append(step(model, optimizer, images()))
        if number == 4:
            file = io.BytesIO()
            torch.save({"model": model, "optimizer": optimizer.state_dict()}, file)
            file.seek(0)
            held = torch.load(file, weights_only=False)
            model = held["model"]
            optimizer = torch.optim.Adam(model.parameters(), 1e-2)
            optimizer.load_state_dict(held["optimizer"])
    return losses, state(model)


@loop
def back_to_the_best_weights():
    model = mlp()
    optimizer, losses, kept = torch.optim.Adam(model.parameters(), 1e-2), [], None
    for number in range(10):
        losses.append(step(model, optimizer))
        if number == 3:
            kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if number == 7:
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
    return losses, state(model)


@loop
def shallow_copy_with_another_head():
    model = Convolutions()
    other = copy.copy(model)
    other._modules = dict(model._modules, head=nn.Linear(64, 2))
    optimizer, losses = torch.optim.SGD([*model.parameters(), *other.head.parameters()], 0.1), []
    for _ in range(8):
        x, y = images()
        loss = cross_entropy(model(x), y) + cross_entropy(other(x), y % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model, other)


@loop
def the_trained_model_is_its_copy_from_now_on():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for number in range(10):
        if number == 5:
            old, model = model, copy.deepcopy(model)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses.append(step(model, optimizer))
    return losses, state(model, old)


@loop
def an_ensemble_in_one_call():
    models = [nn.Linear(6, 3) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    skeleton = copy.deepcopy(models[0]).to("meta")
    optimizer, losses = torch.optim.SGD(parameters.values(), 0.1), []

    def one(held, kept, x):
        return torch.func.functional_call(skeleton, (held, kept), (x,))

    for _ in range(8):
        x, y = rows()
        scores = torch.vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)
        loss = cross_entropy(scores.flatten(0, 1), y.repeat(3))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [value.detach() for value in parameters.values()]


@loop
def momentum_contrast_with_a_queue():
    query = mlp()
    key = copy.deepcopy(query).requires_grad_(False)
    queue = nn.functional.normalize(torch.randn(32, 3), dim=1)
    optimizer, losses = torch.optim.SGD(query.parameters(), 0.1), []
    for number in range(8):
        x, _ = rows()
        asked = nn.functional.normalize(query(x + 0.1 * torch.randn_like(x)), dim=1)
        with torch.no_grad():
            for old, new in zip(key.parameters(), query.parameters(), strict=True):
                old.mul_(0.9).add_(new, alpha=0.1)
            found = nn.functional.normalize(key(x), dim=1)
        scores = torch.cat([(asked * found).sum(1, keepdim=True), asked @ queue.T], 1) / 0.2
        loss = cross_entropy(scores, torch.zeros(len(x), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        start = number % 2 * 16
        queue[start : start + 16] = found
        losses.append(loss.detach())
    return losses, state(query, key)
