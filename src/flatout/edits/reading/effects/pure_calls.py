"""Functions and methods of Python, torch, NumPy and metric libraries that have no effect but what they return.

What draws random numbers, writes to an argument, reads a clock, prints, or advances an iterator is in no list.
"""

import ast

__all__ = [
    "IN_PLACE_METHODS",
    "MAKERS",
    "NUMBER_BUILTINS",
    "is_pure_builtin",
    "is_pure_function",
    "is_pure_method",
    "words",
]


def words(text: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(text.split())


NUMBER_BUILTINS = words(
    "abs all any bool bytes complex divmod float format hasattr hash int isinstance issubclass len ord chr pow range "
    "repr round str"
)
_BUILTINS = NUMBER_BUILTINS | words(
    "dict enumerate filter frozenset iter list map max min reversed set slice sorted sum tuple type zip"
)
MAKERS = words(
    "zeros ones full empty eye arange linspace tensor array zeros_like ones_like full_like empty_like cat "
    "concatenate "
    "stack sum mean prod exp log sqrt matmul dot bincount histc histogram cumsum argsort sort argmax argmin argwhere "
    "nonzero unique softmax log_softmax sigmoid cdist norm std var median"
)
"""Those of torch and NumPy that return new memory, which nobody else holds."""

_TENSOR = MAKERS | words(
    "abs absolute add all allclose amax amin angle any arccos arcsin arctan as_tensor asarray atleast_1d atleast_2d "
    "atan atan2 arctan2 average block_diag bmm broadcast_to broadcast_tensors bucketize cartesian_prod cbrt ceil "
    "chunk "
    "clamp clip column_stack conj convolve copysign corrcoef cos cosh count_nonzero cov cross cummax cummin cumprod "
    "deg2rad diag diagonal diff digitize div divide dsplit dstack einsum eq equal erf exp2 expand_dims expm1 fix "
    "flatnonzero "
    "flip fliplr floor floor_divide fmax fmin fmod frac from_numpy full gather gcd ge greater greater_equal gt "
    "heaviside "
    "histogram2d hstack hypot identity imag index_select inner interp intersect1d inverse is_floating_point "
    "is_tensor "
    "isclose isfinite isin isinf isnan kron kthvalue le less less_equal lerp logaddexp log10 log1p log2 logcumsumexp "
    "logical_and logical_not logical_or logical_xor logspace logsumexp lt masked_select max maximum mean meshgrid "
    "min "
    "minimum mm mod mode moveaxis movedim mul multiply mv nan_to_num nanmax nanmean nanmedian nanmin nanpercentile "
    "nanquantile nanstd nansum ndim ne neg negative not_equal numel ones outer pairwise_distance percentile permute "
    "polyfit polyval pow power ptp quantile rad2deg ravel real reciprocal relu remainder repeat repeat_interleave "
    "reshape "
    "result_type roll rot90 round rsqrt scatter searchsorted select setdiff1d shape sign sin sinh size split square "
    "squeeze std_mean sub subtract swapaxes take take_along_axis take_along_dim tan tanh tensordot tile topk "
    "trace transpose "
    "trapz trapezoid tri tril tril_indices triu triu_indices true_divide trunc unbind unflatten union1d "
    "unique_consecutive "
    "unravel_index unsqueeze vander var_mean vdot view_as_real vsplit vstack where flatten cosine_similarity "
    "float16 float32 float64 int8 int16 int32 int64 uint8 bool_ intp device Size"
)
_FUNCTIONAL = words(
    "adaptive_avg_pool1d adaptive_avg_pool2d avg_pool1d avg_pool2d binary_cross_entropy "
    "binary_cross_entropy_with_logits cosine_similarity cross_entropy ctc_loss elu gelu hinge_embedding_loss "
    "huber_loss "
    "interpolate kl_div l1_loss leaky_relu log_softmax logsigmoid margin_ranking_loss max_pool1d max_pool2d mse_loss "
    "nll_loss normalize one_hot pad pairwise_distance pdist poisson_nll_loss relu sigmoid silu smooth_l1_loss "
    "softmax "
    "softmin softplus tanh triplet_margin_loss unfold fold"
)
_EXACT = words(
    "copy.copy copy.deepcopy json.dumps functools.reduce collections.Counter collections.defaultdict "
    "collections.deque "
    "collections.OrderedDict scipy.stats.pearsonr scipy.stats.spearmanr scipy.stats.kendalltau scipy.stats.entropy "
    "scipy.stats.rankdata scipy.optimize.linear_sum_assignment torch.no_grad torch.inference_mode "
    "torch.is_grad_enabled "
    "torchvision.ops.box_iou torchvision.ops.nms torchvision.ops.box_convert torchvision.utils.make_grid "
    "editdistance.eval editdistance.distance Levenshtein.distance Levenshtein.ratio jiwer.wer jiwer.cer "
    "nltk.edit_distance rapidfuzz.distance.Levenshtein.distance difflib.get_close_matches "
    "torch.nn.utils.parameters_to_vector torch.nn.utils.get_total_norm torch.nn.utils.rnn.pad_sequence "
    "numpy.fromiter itertools.product itertools.combinations itertools.permutations itertools.chain itertools.repeat "
    "itertools.islice itertools.zip_longest itertools.pairwise itertools.chain.from_iterable"
)
_WHOLE = (  # every function below these that begins with a small letter
    "math.", "cmath.", "operator.", "sklearn.metrics.", "scipy.special.", "scipy.spatial.distance.",
    "torchmetrics.functional.", "nltk.translate.bleu_score.", "torch.linalg.", "torch.fft.", "torch.special.",
    "numpy.linalg.", "numpy.fft.",
)  # fmt: skip
_STATISTICS = frozenset(
    f"statistics.{each}" for each in words("mean fmean median stdev pstdev variance pvariance mode multimode quantiles")
)

_METHODS = MAKERS - {"sort", "log", "full", "empty"} | words(
    # of tensors and arrays
    "abs all allclose amax amin any argpartition astype aminmax bfloat16 bmm bool byte ceil char chunk clamp clip "
    "clone "
    "contiguous conj cos cosh count_nonzero cpu cross cummax cummin cumprod cuda data_ptr detach diag diagonal "
    "diff dim "
    "dist div double dsize element_size eq equal erf expand expand_as expm1 flatten flip float floor floor_divide "
    "fmod "
    "frac gather ge get_device gt half hypot index_select int inverse is_complex is_contiguous is_floating_point "
    "isclose isfinite isin isinf isnan item itemsize kthvalue le lerp log10 log1p log2 logical_and logical_not "
    "logical_or logical_xor logsumexp long lt masked_fill masked_select matmul max maximum min minimum mm mode "
    "movedim "
    "mul mv nan_to_num nanmean nanmedian nanquantile nansum narrow ndimension ne neg nelement new_empty new_full "
    "new_ones new_tensor new_zeros nonzero numel numpy outer permute pow ptp quantile ravel reciprocal relu "
    "remainder "
    "repeat repeat_interleave reshape reshape_as roll round rsqrt scatter scatter_add select short sigmoid sign sin "
    "size split square squeeze storage_offset stride sub t take tan tanh tensor_split to to_dense tolist topk trace "
    "transpose tril triu trunc type_as unbind unflatten unfold unsqueeze view view_as where index_add true_divide "
    "swapaxes "
    # of modules, which list what they have
    "parameters named_parameters buffers named_buffers modules named_modules children named_children "
    # of strings, lists and dictionaries
    "capitalize casefold copy count endswith expandtabs find format index isalnum isalpha isdigit islower isspace "
    "isupper items join keys ljust lower lstrip most_common partition removeprefix removesuffix replace rfind rindex "
    "rjust rpartition rsplit rstrip splitlines startswith strip title translate upper values zfill "
    "difference intersection isdisjoint issubset issuperset symmetric_difference union bit_length is_integer "
    # of distributions
    "entropy log_prob"
)
_WITHOUT_ARGUMENTS = frozenset({"log", "exp", "sqrt"})  # loggers have a log(), too
_OF_KEY = frozenset({"get"})  # queues have a get(), too: theirs is given no key
IN_PLACE_METHODS = words(
    "add append appendleft clear discard extend extendleft insert pop popleft popitem remove reverse setdefault sort "
    "update fill subtract put rotate partition"
)
"""Those of lists, dictionaries, sets and arrays that change what they are called on."""


def is_pure_builtin(name: str) -> bool:
    """Return whether a function of Python's has no effect; those that are given functions call these."""
    return name in _BUILTINS


def is_pure_function(dotted: str) -> bool:
    """Return whether what an import stands for has no effect when it is called."""
    root, _, name = dotted.rpartition(".")
    if root in ("torch", "numpy"):
        return name in _TENSOR
    if root == "torch.nn.functional":
        return name in _FUNCTIONAL
    if dotted in _EXACT or dotted in _STATISTICS:
        return True
    return dotted.startswith(_WHOLE) and name[:1].islower() and not name.endswith("_")


def is_pure_method(call: ast.Call) -> bool:
    """Return whether a method has no effect, on whatever of tensors, arrays and Python's own has it."""
    assert isinstance(call.func, ast.Attribute)
    name, is_given = call.func.attr, bool(call.args or call.keywords)
    if name in _WITHOUT_ARGUMENTS:
        return not is_given
    if name in _OF_KEY:
        return bool(call.args) and not call.keywords and not _is_flag(call.args[0])
    return name in _METHODS


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float)
