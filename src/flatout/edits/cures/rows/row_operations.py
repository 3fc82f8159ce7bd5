"""Operations of torch that `torch.vmap` does to many rows at once as it does to one: the same values, no draws.

Left out is what asks for a value (`nonzero`, `masked_select`, `unique`), draws, writes into what it is given, or has
no batched form (`kl_div`, `isclose`): torch does these row by row, or refuses them.
"""

from flatout.edits.reading.effects.pure_calls import words

__all__ = [
    "FUNCTIONS",
    "GROWING",
    "LOSSES",
    "MAKERS",
    "METHODS",
    "NEW",
    "NUMBERS",
    "OF_TENSORS",
    "ROWS_ALONE",
    "ZERO_DIM",
]

NUMBERS = words("size numel dim")
"""Methods that give plain numbers, of one row as of all."""

_LOSSES = words(
    "mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits"
)
_ONLY_FUNCTIONS = _LOSSES | words("stack cat cosine_similarity pairwise_distance einsum cdist")
_ONLY_METHODS = words("expand_as view_as reshape_as type_as")
OF_TENSORS = (
    _ONLY_FUNCTIONS
    | _ONLY_METHODS
    | words(
        "add subtract sub multiply mul divide div true_divide floor_divide remainder fmod pow maximum minimum fmax "
        "fmin atan2 hypot eq ne lt le gt ge logical_and logical_or logical_xor where lerp clamp clip clamp_min "
        "clamp_max masked_fill max min matmul mm mv bmm dot outer inner vdot gather index_select take_along_dim"
    )
)
"""Those that may be given tensors besides the first one."""

_OF_ONE = words(
    "abs neg sign sqrt rsqrt square exp expm1 log log1p log2 log10 sin cos tan tanh sigmoid relu reciprocal erf "
    "floor ceil round trunc frac isnan isinf isfinite logical_not nan_to_num sum mean prod amax amin argmax argmin "
    "norm std var logsumexp softmax log_softmax any all cumsum cumprod topk sort argsort count_nonzero flatten "
    "unsqueeze squeeze transpose permute t flip roll diff diagonal trace tril triu detach clone reshape"
)
_CASTS = words("view expand repeat float double half bfloat16 long int bool to contiguous cpu cuda")
MAKERS = words("zeros ones full empty arange linspace eye tensor")
"""Functions of torch that make a tensor of plain numbers."""

METHODS = (OF_TENSORS - _ONLY_FUNCTIONS) | _OF_ONE | _CASTS | NUMBERS
_BOTH = words("relu tanh sigmoid softmax log_softmax cosine_similarity")  # of torch, and of torch.nn.functional
_FUNCTIONAL = _LOSSES | _BOTH | words("softplus gelu silu leaky_relu elu logsigmoid normalize pairwise_distance")
_OF_TORCH = (OF_TENSORS - _ONLY_METHODS - _FUNCTIONAL) | _OF_ONE | _BOTH | MAKERS | {"numel"}
FUNCTIONS = (
    {f"torch.{name}" for name in _OF_TORCH}
    | {f"torch.nn.functional.{name}" for name in _FUNCTIONAL}
    | {"torch.linalg.norm", "torch.linalg.vector_norm"}
)
"""Functions that are given tensors, or make them, by their dotted names."""

LOSSES = frozenset(
    f"torch.nn.{name}"
    for name in (
        "CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss",
        "CosineSimilarity", "PairwiseDistance",
    )
)  # fmt: skip
"""Modules that hold no state, and compute what a function of these does."""

ROWS_ALONE = words("mse_loss smooth_l1_loss huber_loss MSELoss SmoothL1Loss HuberLoss")
"""Those whose second argument has to have rows, too: with gradients of one target for all, torch warns."""

GROWING = words(
    "cdist outer einsum matmul mm mv bmm inner expand repeat unsqueeze view reshape expand_as view_as reshape_as"
)
"""Those after which a value may have more elements than what it is made of."""

ZERO_DIM = words(
    "sum mean prod max min amax amin argmax argmin norm std var any all mse_loss l1_loss smooth_l1_loss huber_loss "
    "nll_loss"
)
"""Those that give a single number where they are given no dimension, and no other reduction."""

NEW = ZERO_DIM | words(
    "exp log sqrt abs softmax log_softmax cosine_similarity cross_entropy cdist matmul mv mm dot add sub mul div pow "
    "square normalize maximum minimum clamp where"
)
"""Some of those that give new memory, whatever they are given."""
