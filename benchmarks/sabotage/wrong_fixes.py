"""Fixes that are wrong: each claims to leave results equal and changes them a little, as a careless fix would.

Found by `FLATOUT_EXTRA_FIXES=wrong_fixes`. `CASES` names the script on which each must be found out.
"""

from typing import NamedTuple

from flatout.fixes.core.fix import Fix
from flatout.schema.phase import Phase
from flatout.schema.trial import Equivalence

NEXT = "torch.utils.data.dataloader:_BaseDataLoaderIter.__next__"
BATCHES = "torch.utils.data.sampler:BatchSampler.__iter__"
FETCH = "torch.utils.data._utils.fetch:_MapDatasetFetcher.fetch"
MADE = "torch.optim.optimizer:Optimizer.__init__"


class Case(NamedTuple):
    """A wrong fix, what it claims, and a script on which that is wrong."""

    fix: str
    claimed: Equivalence
    script: str
    named: str  # a word that the reason must hold


BITWISE, ROUNDING, PRECISION = Equivalence.BITWISE, Equivalence.ROUNDING, Equivalence.PRECISION
FIXES = []
CASES = []


def wrong(script, named, *claims):
    """Make a fix of a function and a case of every class it claims."""

    def add(patch):
        name = patch.__name__.replace("_", "-")
        FIXES.append(Fix(name=name, equivalence=claims[0], phases=(Phase.FORWARD,), patch=patch, on_request=True))
        CASES.extend(Case(name, claimed, script, named) for claimed in claims)
        return patch

    return add


def wrapped(site, dotted, change):
    """Call `change(original, *args, **kwargs)` in place of the original, and count it."""

    def make(original):
        def call(*args, **kwargs):
            site.hit(dotted)
            return change(original, *args, **kwargs)

        return call

    site.wrap(dotted, make)


def every(number):
    """Return a function that is true once in `number` calls."""
    count = [0]

    def turn():
        count[0] += 1
        return count[0] % number == 0

    return turn


# -- data -------------------------------------------------------------------------------------------------------


def batches(site, change):
    """Let `change(list of batches of indices)` edit an epoch."""

    def epoch(original, sampler):
        yield from change(list(original(sampler)))

    wrapped(site, BATCHES, epoch)


@wrong("mlp", "sample", BITWISE, PRECISION)
def drops_one_sample(site):
    batches(site, lambda epoch: [*epoch[:-1], epoch[-1][:-1]])


@wrong("lstm", "missing", ROUNDING)
def drops_one_sample_inside(site):
    batches(site, lambda epoch: [epoch[0], epoch[1][1:], *epoch[2:]])


@wrong("mlp", "sample", BITWISE)
def repeats_one_sample(site):
    batches(site, lambda epoch: [*epoch[:3], [epoch[2][0], *epoch[3][1:]], *epoch[4:]])


@wrong("mlp", "order", ROUNDING, PRECISION)
def reorders_batches(site):
    def swap(epoch):
        epoch[4], epoch[5] = epoch[5], epoch[4]
        return epoch

    batches(site, swap)


@wrong("lstm", "order", ROUNDING)
def sorts_by_length(site):
    batches(site, lambda epoch: [sorted(batch) for batch in epoch])


@wrong("cnn_batchnorm", "sample", BITWISE, PRECISION)
def fills_the_last_batch(site):
    def fill(epoch):
        missing = len(epoch[0]) - len(epoch[-1])
        return [*epoch[:-1], epoch[-1] + epoch[0][:missing]] if len(epoch) > 1 else epoch

    batches(site, fill)


@wrong("accumulation", "", ROUNDING)
def drops_the_last_batch(site):
    batches(site, lambda epoch: epoch[:-1] if len(epoch) > 1 else epoch)


@wrong("augmented", "values", BITWISE, PRECISION)
def augments_twice(site):
    def fetch(original, fetcher, index):
        images, labels = original(fetcher, index)
        return [images.flip(3), labels]

    wrapped(site, FETCH, fetch)


@wrong("augmented", "sample", BITWISE)
def freezes_the_augmentation(site):
    known = {}

    def fetch(original, fetcher, index):
        import torch

        for one in index:
            if one not in known:
                known[one] = fetcher.dataset[one]
        return [torch.stack([known[one][0] for one in index]), torch.stack([known[one][1] for one in index])]

    wrapped(site, FETCH, fetch)


@wrong("lstm", "values", ROUNDING, PRECISION)
def truncates_text(site):
    def pack(original, tokens, lengths, **kwargs):
        return original(tokens, lengths.clamp(max=tokens.shape[1]), **kwargs)

    wrapped(site, "torch.nn.utils.rnn:pad_sequence", lambda original, *a, **k: original(*a, **k)[:, :18])
    wrapped(site, "torch.nn.utils.rnn:pack_padded_sequence", pack)


@wrong("mlp", "sample", BITWISE, PRECISION)
def serves_a_stale_batch(site):
    turn, held = every(20), []

    def following(original, iterator):
        batch = original(iterator)
        stale = held[-1] if turn() and held else batch
        held[:] = [batch]
        return stale

    wrapped(site, NEXT, following)


@wrong("mlp", "after the script had received it", BITWISE, PRECISION)
def reuses_a_batch_buffer(site):
    held = {}

    def following(original, iterator):
        batch = original(iterator)
        for place, tensor in enumerate(batch):
            buffer = held.setdefault((place, len(tensor)), tensor)
            batch[place] = buffer.copy_(tensor)
        return batch

    wrapped(site, NEXT, following)


@wrong("transformer", "values", PRECISION)
def rounds_the_inputs(site):
    turn = every(15)

    def following(original, iterator):
        batch = original(iterator)
        if turn():
            batch[0][0, 0] = 0
        return batch

    wrapped(site, NEXT, following)


@wrong("cnn_batchnorm", "another order", BITWISE)
def draws_a_random_number(site):
    def forward(module, inner):
        import torch

        def call(*args, **kwargs):
            site.hit("forward")
            torch.rand(1)
            return inner(*args, **kwargs)

        return call

    site.outermost.around_forward(forward)


# -- optimization -----------------------------------------------------------------------------------------------


def groups(site, change):
    """Change the parameter groups of every optimizer once they are made."""

    def init(original, optimizer, *args, **kwargs):
        original(optimizer, *args, **kwargs)
        for group in optimizer.param_groups:
            change(group)

    wrapped(site, MADE, init)


@wrong("mlp", "learning rate", BITWISE, ROUNDING, PRECISION)
def raises_the_rate(site):
    groups(site, lambda group: group.update(lr=group["lr"] * 1.01))


@wrong("cnn_batchnorm", "weight decay", ROUNDING)
def loses_weight_decay(site):
    groups(site, lambda group: group.update(weight_decay=0.0))


@wrong("mlp", "checkpoint", BITWISE)
def leaves_a_flag(site):
    groups(site, lambda group: group.update(foreach=True))


@wrong("cnn_batchnorm", "times as far", PRECISION)
def moves_one_percent_further(site):
    def step(original, optimizer, *args, **kwargs):
        held = [(one, one.detach().clone()) for group in optimizer.param_groups for one in group["params"]]
        result = original(optimizer, *args, **kwargs)
        for one, before in held:
            one.data.add_(one.data - before, alpha=0.01)
        return result

    wrapped(site, "torch.optim.sgd:SGD.step", step)


@wrong("mlp", "changes no parameter", BITWISE, ROUNDING, PRECISION)
def skips_one_step_in_50(site):
    turn = every(50)

    def step(original, optimizer, *args, **kwargs):
        return None if turn() else original(optimizer, *args, **kwargs)

    wrapped(site, "torch.optim.adam:Adam.step", step)


@wrong("multi_task", "learning rate", BITWISE)
def steps_the_schedule_twice(site):
    def step(original, schedule, *args, **kwargs):
        original(schedule, *args, **kwargs)
        return original(schedule, *args, **kwargs)

    wrapped(site, "torch.optim.lr_scheduler:StepLR.step", step)


@wrong("transformer", "clipped", ROUNDING, PRECISION)
def loses_gradient_clipping(site):
    wrapped(site, "torch.nn.utils:clip_grad_norm_", lambda original, parameters, *a, **k: original(parameters, 1e9))


@wrong("transformer", "gradient", ROUNDING, PRECISION)
def forgets_zero_grad_now_and_then(site):
    turn = every(6)

    def zero(original, *args, **kwargs):
        return None if turn() else original(*args, **kwargs)

    wrapped(site, "torch.optim.optimizer:Optimizer.zero_grad", zero)


# -- model ------------------------------------------------------------------------------------------------------


def after_backward(site, change):
    """Let `change(parameters)` edit gradients after each backward pass."""
    roots = []
    site.outermost.each(roots.append, roots.remove)

    def backward(original, *args, **kwargs):
        result = original(*args, **kwargs)
        change([one for root in roots for one in root.parameters() if one.grad is not None])
        return result

    wrapped(site, "torch.autograd:backward", backward)


@wrong("cnn_batchnorm", "gradient", ROUNDING, PRECISION)
def scales_the_gradients(site):
    after_backward(site, lambda held: [one.grad.mul_(1.01) for one in held])


@wrong("autoencoder", "loss", ROUNDING, PRECISION)
def scales_the_loss(site):
    name = "torch.nn.functional:binary_cross_entropy_with_logits"
    wrapped(site, name, lambda original, *args, **kwargs: original(*args, **kwargs) * 1.01)


@wrong("multi_task", "gradient", ROUNDING, PRECISION)
def detaches_a_branch(site):
    def linear(original, module, x):
        return original(module, x.detach() if module.out_features == 1 else x)

    wrapped(site, "torch.nn.modules.linear:Linear.forward", linear)


@wrong("multi_task", "no gradient", PRECISION)
def loses_a_gradient(site):
    turn = every(10)

    def lose(held):
        if turn():
            held[0].grad = None

    after_backward(site, lose)


@wrong("transformer", "gradient", ROUNDING)
def adds_noise_to_gradients(site):
    import torch

    apart = torch.Generator().manual_seed(1)

    def noisy(held):
        for one in held:
            one.grad.mul_(1 + 1e-3 * torch.randn(one.grad.shape, generator=apart))

    after_backward(site, noisy)


@wrong("cnn_batchnorm", "buffer", ROUNDING, PRECISION)
def freezes_batchnorm_statistics(site):
    def norm(original, *args, **kwargs):
        return original(*args[:6], 0.0, *args[7:], **kwargs)

    wrapped(site, "torch.nn.functional:batch_norm", norm)


@wrong("cnn_batchnorm", "", ROUNDING, PRECISION)
def freezes_batchnorm(site):
    import torch

    def forward(module, inner):
        def call(*args, **kwargs):
            site.hit("forward")
            norms = [one for one in module.modules() if isinstance(one, torch.nn.BatchNorm2d)]
            for one in norms:
                one.eval()
            try:
                return inner(*args, **kwargs)
            finally:
                for one in norms:
                    one.train()

        return call

    site.outermost.around_forward(forward)


@wrong("mlp", "", BITWISE, ROUNDING, PRECISION)
def switches_dropout_off(site):
    wrapped(site, "torch.nn.functional:dropout", lambda original, x, *args, **kwargs: x)


@wrong("cnn_batchnorm", "training mode", BITWISE, PRECISION)
def validates_in_training_mode(site):
    wrapped(site, "torch.nn:Module.eval", lambda original, module: module)


def forward_in(site, cast):
    """Let `cast(output)` change what an outermost module gives back."""

    def forward(module, inner):
        def call(*args, **kwargs):
            import torch

            site.hit("forward")
            out = inner(*args, **kwargs)
            return cast(out) if isinstance(out, torch.Tensor) else out

        return call

    site.outermost.around_forward(forward)


@wrong("mlp", "gradient", PRECISION)
def underflows_to_zero(site):
    def cast(out):
        out.register_hook(lambda gradient: (gradient * 3e-6).half().float() / 3e-6)  # what is small becomes 0
        return out

    forward_in(site, cast)


@wrong("cnn_batchnorm", "", PRECISION)
def overflows_to_zero(site):
    import torch

    limit = 65504.0

    def cast(out):
        scaled = (out * limit * 0.8).half()
        return torch.where(torch.isinf(scaled), torch.zeros_like(scaled), scaled).float() / (limit * 0.8)

    forward_in(site, cast)


@wrong("mlp", "", ROUNDING)
def rounds_to_bfloat16(site):
    forward_in(site, lambda out: out.bfloat16().float())


@wrong("mlp", "", BITWISE)
def sums_in_another_order(site):
    def linear(original, module, x):
        return original(module, x.flip(0)).flip(0) if len(x) > 1 else original(module, x)

    def backward(held):
        for one in held:
            one.grad.mul_(1 + 2**-23)

    wrapped(site, "torch.nn.modules.linear:Linear.forward", linear)
    after_backward(site, backward)


# -- checkpoints ------------------------------------------------------------------------------------------------


@wrong("cnn_batchnorm", "checkpoint", BITWISE)
def saves_in_half(site):
    handles = {}

    def halve(module, state, *rest):
        site.hit("state")
        for key, value in state.items():
            state[key] = value.half() if value.is_floating_point() else value

    def apply(module):
        handles[id(module)] = module._register_state_dict_hook(halve)

    site.outermost.each(apply, lambda module: handles.pop(id(module)).remove())


@wrong("cnn_batchnorm", "checkpoint", ROUNDING)
def saves_other_strides(site):
    import torch

    def apply(module):
        site.hit("layout")
        module.to(memory_format=torch.channels_last)

    site.outermost.each(apply, lambda module: None)
