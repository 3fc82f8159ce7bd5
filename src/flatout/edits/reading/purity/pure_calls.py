"""Functions, methods and attributes that compute something of plain values and do nothing else, with their arguments.

Plain values are tensors and arrays whose type is exactly that, numbers, texts, and lists and dictionaries of them. What
is not listed is unknown, and so is a call with more arguments than the list gives, by position: they may be an `out`, a
`copy` or an `inplace`. So are keywords that are not listed.
"""

import ast
from collections.abc import Iterator, Mapping
from enum import IntEnum

__all__ = [
    "ATTRIBUTES",
    "CONSUMERS",
    "KEYWORDS",
    "PURE_FUNCTIONS",
    "PURE_METHODS",
    "PlainKind",
    "is_constant",
    "is_plain_constant",
    "is_within",
    "words",
]


class PlainKind(IntEnum):
    """How a plain value may be changed.

    A NUMBER (or a text, a type, None) cannot be. OWN: new memory, which nobody else sees. PLAIN: others may have it.
    """

    NUMBER = 0
    OWN = 1
    PLAIN = 2


def words(text: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(text.split())


_Table = Mapping[str, tuple[int, PlainKind]]
NUMBER, OWN, PLAIN = PlainKind

KEYWORDS = words(
    "dim keepdim axis keepdims dtype p ord largest sorted descending stable unbiased correction ddof reduction weight "
    "ignore_index label_smoothing num_classes minlength weights bins min max range density return_counts "
    "return_inverse decimals eps q beta nrow padding value_range scale_each pad_value normalize average zero_division "
    "labels multi_class pos_label sample_weight rtol atol equal_nan pos_weight log_target key default fill_value"
)

# name:most arguments by position
_NEW = (  # methods and functions whose results are new memory, or numbers
    "sum:1 mean:1 std:1 var:1 prod:1 max:1 min:1 amax:1 amin:1 argmax:1 argmin:1 all:1 any:1 norm:2 median:1 "
    "quantile:2 nanmean:1 nansum:1 nanmedian:1 count_nonzero:1 logsumexp:1 mode:1 cumsum:1 cumprod:1 trace:0 "
    "abs:0 sqrt:0 rsqrt:0 exp:0 expm1:0 log:0 log1p:0 log2:0 log10:0 square:0 sigmoid:0 tanh:0 sin:0 cos:0 sign:0 "
    "floor:0 ceil:0 round:1 neg:0 reciprocal:0 isnan:0 isinf:0 isfinite:0 logical_not:0 softmax:1 log_softmax:1 "
    "clamp:2 clip:2 eq:1 ne:1 lt:1 le:1 gt:1 ge:1 add:1 sub:1 mul:1 div:1 pow:1 maximum:1 minimum:1 fmod:1 "
    "remainder:1 logical_and:1 logical_or:1 logical_xor:1 topk:2 argsort:1 unique:0 bincount:2 histc:3 nonzero:0 "
    "index_select:2 gather:2 masked_fill:2 masked_select:1 where:2 dist:2 clone:0 isclose:1 kthvalue:2 allclose:1"
)
_SHARED = (  # methods whose results may be the memory that they are called on
    "detach:0 cpu:0 to:1 float:0 double:0 half:0 bfloat16:0 int:0 long:0 bool:0 numpy:0 view:4 reshape:4 "
    "flatten:2 squeeze:1 unsqueeze:1 transpose:2 permute:4 t:0 expand:4 expand_as:1 type_as:1 contiguous:0 narrow:3 "
    "select:2 diff:0 chunk:2 split:2 unbind:1 ravel:0 astype:1 swapaxes:2 repeat:4 flip:1 diagonal:0"
)
_TORCH = (  # functions of torch that are no methods as well
    "tensor:1 zeros:4 ones:4 full:2 zeros_like:1 ones_like:1 eye:2 arange:3 linspace:3 stack:2 cat:2 equal:2 "
    "numel:1 is_tensor:1 sort:2 outer:2"
)
_FUNCTIONAL = (
    "cross_entropy:2 nll_loss:2 mse_loss:2 l1_loss:2 smooth_l1_loss:2 binary_cross_entropy:2 kl_div:2 softmax:2 "
    "binary_cross_entropy_with_logits:2 log_softmax:2 sigmoid:1 tanh:1 one_hot:2 cosine_similarity:4 softplus:1 "
    "pairwise_distance:4 normalize:4 relu:1 logsigmoid:1 huber_loss:2"
)
_NUMPY = (
    "abs:1 absolute:1 sqrt:1 exp:1 log:1 log2:1 log10:1 log1p:1 square:1 sign:1 floor:1 ceil:1 isnan:1 isinf:1 "
    "isfinite:1 tanh:1 maximum:2 minimum:2 add:2 subtract:2 multiply:2 divide:2 power:2 mod:2 equal:2 not_equal:2 "
    "greater:2 less:2 logical_and:2 logical_or:2 sum:2 mean:2 prod:2 std:2 var:2 max:2 min:2 amax:2 amin:2 argmax:2 "
    "argmin:2 all:2 any:2 ptp:2 median:2 percentile:3 quantile:3 nanmean:2 nansum:2 nanmax:2 nanmin:2 nanstd:2 "
    "average:3 cumsum:2 cumprod:2 count_nonzero:2 bincount:3 unique:1 argsort:2 sort:2 array:2 "
    "concatenate:2 stack:2 vstack:1 hstack:1 zeros:2 ones:2 zeros_like:2 ones_like:2 full:3 arange:3 linspace:3 "
    "where:3 clip:3 round:2 around:2 dot:2 outer:2 corrcoef:1 cov:1 digitize:3 searchsorted:2 isclose:2 "
    "allclose:2 eye:2 trace:1 intersect1d:2 union1d:2 isin:2 interp:3"
)
_NUMPY_SHARED = (
    "histogram:4 diff:2 asarray:2 ravel:1 reshape:2 transpose:2 squeeze:2 expand_dims:2 diag:2 "
    "float32:1 float64:1 int64:1 int32:1"
)
_SCORES = (
    "accuracy_score balanced_accuracy_score f1_score precision_score recall_score roc_auc_score confusion_matrix "
    "average_precision_score matthews_corrcoef cohen_kappa_score log_loss r2_score mean_squared_error "
    "mean_absolute_error jaccard_score precision_recall_fscore_support"
)
_MATH = (
    "sqrt exp log log2 log10 log1p pow fabs floor ceil isnan isinf isfinite hypot fsum prod sin cos tanh exp2 "
    "copysign fmod gcd dist comb"
)


def _entries(
    text: str, kind: PlainKind, prefix: str = "", given: int = 0
) -> Iterator[tuple[str, tuple[int, PlainKind]]]:
    for each in text.split():
        name, _, most = each.partition(":")
        yield prefix + name, (int(most or 3) + given, kind)


PURE_METHODS: _Table = {
    **dict(_entries(_NEW, OWN)),
    **dict(_entries(_SHARED, PLAIN)),
    **dict(_entries("item:0 numel:0 nelement:0 dim:0 size:1 count:1 index:1 format:9 join:1", NUMBER)),
    **dict(_entries("tolist:0 keys:0 values:0 items:0 get:2 copy:0 most_common:1", OWN)),
}
"""Methods of plain values: the most arguments by position that are no constants, and what they return."""

PURE_FUNCTIONS: _Table = {
    **dict(_entries(_NEW, OWN, "torch.", given=1)),
    **dict(_entries(_TORCH, OWN, "torch.")),
    **dict(
        _entries(
            "squeeze:2 flatten:3 histogram:2 diff:2 reshape:2 unsqueeze:2 as_tensor:1 from_numpy:1", PLAIN, "torch."
        )
    ),
    **dict(_entries("norm:3 vector_norm:3 matrix_norm:2 svdvals:1 eigvalsh:1", OWN, "torch.linalg.")),
    **dict(_entries(_FUNCTIONAL, OWN, "torch.nn.functional.")),
    **dict(_entries("torch.nn.utils.get_total_norm:2 collections.Counter:1", OWN)),
    **dict(_entries("torchvision.utils.make_grid:2", PLAIN)),
    **dict(_entries(_NUMPY, OWN, "numpy.")),
    **dict(_entries(_NUMPY_SHARED, PLAIN, "numpy.")),
    **dict(_entries("norm:2 svd:1 eigvalsh:1 det:1", OWN, "numpy.linalg.")),
    **dict(_entries(_SCORES, OWN, "sklearn.metrics.")),
    **dict(_entries("pearsonr:2 spearmanr:2 entropy:2", OWN, "scipy.stats.")),
    **dict(_entries(_MATH, NUMBER, "math.")),
}
"""Functions by their dotted names: the most arguments by position, and what they return."""

CONSUMERS: Mapping[str, PlainKind] = {
    **dict.fromkeys(("len", "float", "int", "bool", "str", "repr", "any", "all", "range"), NUMBER),
    **dict.fromkeys(("list", "tuple", "set", "dict", "sorted", "sum", "divmod", "pow", "round", "abs"), OWN),
    **dict.fromkeys(("max", "min"), PLAIN),
}
"""Functions of Python's, which read what they are given to its end, or are read so."""

ATTRIBUTES: Mapping[str, PlainKind] = {
    **dict.fromkeys(("dtype", "device", "ndim", "requires_grad", "is_cuda", "size", "shape"), NUMBER),
    **dict.fromkeys(("T", "mT", "data", "grad", "values", "indices", "real"), PLAIN),
}
"""Attributes of tensors and arrays, and of the pairs that their methods return."""

_TYPES = words(
    "float float16 float32 float64 bfloat16 half double int int8 int16 int32 int64 long uint8 bool bool_ pi inf nan e"
)


def is_plain_constant(dotted: str) -> bool:
    """Return whether an import stands for a type of numbers, or a number: `torch.float32`, `math.pi`."""
    root, _, name = dotted.rpartition(".")
    return root in ("torch", "numpy", "math") and name in _TYPES


def is_constant(node: ast.expr) -> bool:
    """Return whether an expression is a constant, or tuple of constants: no tensor or array that is written to."""
    if isinstance(node, ast.UnaryOp | ast.Starred):
        return not isinstance(node, ast.Starred) and is_constant(node.operand)
    if isinstance(node, ast.Tuple):
        return all(map(is_constant, node.elts))
    return isinstance(node, ast.Constant)


def is_within(call: ast.Call, most: int, *, method: bool) -> bool:
    """Return whether a call gives no more than the listed arguments; methods may be given further constants."""
    if any(isinstance(each, ast.Starred) for each in call.args) or any(e.arg not in KEYWORDS for e in call.keywords):
        return False
    return len(call.args) <= most or (method and all(map(is_constant, call.args[most:])))
