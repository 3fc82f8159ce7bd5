"""The call of `scaled_dot_product_attention` for an attention that is written out, and what it is asked for."""

import ast
import re
from dataclasses import dataclass, field

from flatout.edits.cures.forward.attention_chain import Attention, Layer, NoAttention
from flatout.edits.cures.forward.matrix_products import permuted, rank_of_transpose, without_transpose
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import is_plain
from flatout.edits.reading.plain_numbers import is_number

__all__ = ["QUESTION", "AttentionCall"]

_INFINITE = re.compile(r"float\('-inf(inity)?'\)|-(float\('inf(inity)?'\)|(torch|math|np|numpy)\.inf)", re.IGNORECASE)
_CAST = re.compile(r"dtype|torch\.(b?float|half)|type_as|float\(\)")
_LAST = ("-1", "1", "2", "3")
QUESTION = '''\
def {name}(q, k, v, rank, mask, added, factors, dropout):
    """Return whether one call of scaled_dot_product_attention does here what its steps do, up to rounding."""
    if not all(type(each) is torch.Tensor and each.dtype == q.dtype for each in (q, k, v)):
        return False
    if not q.dim() == k.dim() == v.dim() or q.dim() < 2 or (rank and q.dim() != rank) or not q.is_floating_point():
        return False
    if dropout and q.device.type != "cpu":
        return False
    for each in factors:
        is_row = type(each) is torch.Tensor and (each.dim() == 0 or each.size(-1) == 1) and each.dim() <= q.dim()
        if type(each) not in (int, float) and not is_row:
            return False
    if mask is None:
        return True
    if type(mask) is not torch.Tensor or not 2 <= mask.dim() <= q.dim() or added != mask.is_floating_point():
        return False
    if not added:
        return mask.dtype == torch.bool and bool(mask.any(-1).all())
    return mask.dtype == q.dtype and bool((mask > -1000).any(-1).all())'''
"""Code of the function that asks; a row that attends to nothing comes out otherwise."""


@dataclass
class AttentionCall:
    """The call that is put together from the layers, the first one done first."""

    place: EditPlace
    attention: Attention
    mask: str = ""
    asked: str = ""  # the mask is None where this is
    added: bool = False  # the mask is added, and does not say what is attended to
    scale: str = ""
    factors: str = ""  # behind the queries, where they are no numbers
    ranks: set[int] = field(default_factory=set)
    twice: list[ast.expr] = field(default_factory=list)  # what the question reads, too
    asks: list[str] = field(default_factory=list)
    given: tuple[str, str, str] = ("", "", "")
    factored: list[str] = field(default_factory=list)
    dropout: str = ""
    filled: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the call.

        Raises:
            NoAttention: the layers do more than it does.
            ValueError: an einsum has other dimensions.
        """
        q, k, v, out, wanted = self._factors()
        layers = self.attention.layers[::-1]
        at = next(number for number, each in enumerate(layers) if each.kind == "softmax")
        for each in layers[:at]:
            self._score(each, v)
        dim = ast.unparse(layers[at].given[0])
        if dim not in _LAST:
            raise NoAttention("the softmax is not over the last dimension")
        self.ranks |= {int(dim) + 1} if dim != "-1" else set()
        for each in layers[at + 1 :]:
            self._weight(each)
        scores = self.attention.scores
        self.ranks |= {3} if scores.three or self.attention.out.three else set()
        self.given = (q, k, v)
        self.twice += [scores.left, scores.right, self.attention.out.right]
        three = scores.three and not self.mask
        q, k, v = (f"{each}.unsqueeze(1)" if three else each for each in (f"{_in_brackets(q)}{self.factors}", k, v))
        if three and self.factors:
            q = f"({_in_brackets(q.removesuffix('.unsqueeze(1)'))}).unsqueeze(1)"
        given = {"attn_mask": self._whole_mask(), "dropout_p": self.dropout, "scale": self.scale or "1.0"}
        named = "".join(f", {name}={value}" for name, value in given.items() if value)
        call = f"{self._function()}({q}, {k}, {v}{named})" + (".squeeze(1)" if three else "")
        if len(self.ranks) > 1:
            raise NoAttention("its dimensions are counted in several ways")
        return permuted(f"{call}.contiguous()", out, wanted)

    def asked_by(self, question: str) -> str:
        """Return the condition under which the call does what the steps do."""
        rank = max(self.ranks, default=0)
        told = [
            *self.given,
            rank,
            self._whole_mask() or "None",
            self.added,
            f"[{', '.join(self.factored)}]",
            self.dropout or "0.0",
        ]
        return " and ".join([*self.asks, f"{question}({', '.join(map(str, told))})"])

    def _whole_mask(self) -> str:
        return f"None if {self.asked} is None else {self.mask}" if self.asked else self.mask

    def _function(self) -> str:
        names = self.place.source.names.imports
        functional = next((name for name, dotted in names.items() if dotted == "torch.nn.functional"), None)
        return f"{functional or 'torch.nn.functional'}.scaled_dot_product_attention"

    def _factors(self) -> tuple[str, str, str, str, str]:
        """Return queries, keys, values, and the letters of what comes out: the call's, and the script's."""
        scores, out = self.attention.scores, self.attention.out
        if scores.letters[0]:
            self.ranks.add(len(scores.letters[2]))
            q, k = _by_letters(scores.letters, scores.left, scores.right)
        else:
            q, turned = ast.unparse(scores.left), without_transpose(scores.right)
            self.ranks |= {rank_of_transpose(scores.right)} - {0} if turned is not None else set()
            k = f"{_in_brackets(ast.unparse(scores.right))}.transpose(-2, -1)"
            k = ast.unparse(turned) if turned is not None else k
        if not out.letters[0]:
            return q, k, ast.unparse(out.right), "", ""
        weights, values, wanted = out.letters
        (added,) = {*values} & {*wanted} - {*weights} or {""}
        v = permuted(_in_brackets(ast.unparse(out.right)), values, f"{weights[:-2]}{weights[-1]}{added}")
        return q, k, v, f"{weights[:-2]}{weights[-2]}{added}", wanted

    def _score(self, layer: Layer, v: str) -> None:
        """Take what is done to the scores before the softmax."""
        if layer.unless_none is not None and (layer.kind not in ("fill", "add", "keep") or self.mask):
            raise NoAttention("more than a mask is left out where something is None")
        if layer.unless_none is not None:
            self.asked = ast.unparse(layer.unless_none)
        if layer.kind in ("scale", "divide"):
            self._scaled("*" if layer.kind == "scale" else "/", layer.given[0])
        elif layer.kind == "add":
            other = ast.unparse(layer.given[0])
            self._only_added()
            self.twice.append(layer.given[0])
            known = f"type({other}) is torch.Tensor and {_in_brackets(other)}.is_floating_point()"
            self.asks.append(f"({self.asked} is None or {known})" if self.asked else known)
            self.mask, self.added = f"{_in_brackets(self.mask)} + {_in_brackets(other)}" if self.mask else other, True
        elif layer.kind in ("fill", "keep"):
            self._filled(layer, v)
        elif layer.kind != "cast" or not _CAST.search(ast.unparse(layer.node)):
            raise NoAttention(f"{ast.unparse(layer.node)} is neither a scale nor a mask")

    def _scaled(self, sign: str, factor: ast.expr) -> None:
        if self.added or self.filled:
            raise NoAttention("the scores are scaled after a mask")
        text = _in_brackets(ast.unparse(factor))
        if not is_number(self.place.project, self.place.source, factor):
            self.factors += f" {sign} {text}"
            self.factored.append(text)
            self.twice.append(factor)
        elif self.scale:
            self.scale = f"{self.scale} {sign} {text}"
        else:
            self.scale = ast.unparse(factor) if sign == "*" else f"1.0 / {text}"

    def _only_added(self) -> None:
        if self.asked and self.mask:
            raise NoAttention("a second mask follows one that may be None")
        if self.mask and not self.added:
            raise NoAttention("a mask is added after another one")

    def _filled(self, layer: Layer, v: str) -> None:
        """Take a mask that fills scores with a number."""
        condition, value = layer.given
        self.twice.append(condition)
        number = ast.unparse(value)
        if "finfo" in number:
            number = f"torch.finfo({v}.dtype).min"
        away = ast.unparse(condition) if layer.kind == "fill" else _opposite(condition)
        if self.mask:
            self._only_added()
            self.mask = f"{_in_brackets(self.mask)}.masked_fill({away}, {number})"
        elif _INFINITE.fullmatch(number):
            self.mask = _opposite(condition) if layer.kind == "fill" else ast.unparse(condition)
        elif is_plain(ast.parse(v, mode="eval").body):
            zeros = f"torch.zeros_like({ast.unparse(condition)}, dtype={v}.dtype)"
            self.mask, self.added = f"{zeros}.masked_fill({away}, {number})", True
        else:
            raise NoAttention("the values that are added up have no name, whose type a mask could have")
        self.filled.append(number)

    def _weight(self, layer: Layer) -> None:
        """Take what is done to the weights behind the softmax."""
        if layer.kind == "cast" and layer.unless_none is None and _CAST.search(ast.unparse(layer.node)):
            return
        if layer.kind != "dropout" or self.dropout:
            raise NoAttention(f"{ast.unparse(layer.node)} is done to the weights, too")
        first = ast.unparse(layer.given[0])
        if len(layer.given) == 1 and isinstance(layer.given[0], ast.Name):
            self.asks.append(f"type({first}) is torch.nn.Dropout")
        asked = f"{ast.unparse(layer.unless_none)} is not None and " if layer.unless_none is not None else ""
        if len(layer.given) == 1:
            self.dropout = f"{first}.p if {asked}{first}.training else 0.0"
        elif not asked and ast.unparse(layer.given[1]) == "True":
            self.dropout = first
        else:
            self.dropout = f"{first} if {asked}{ast.unparse(layer.given[1])} else 0.0"


def _by_letters(letters: tuple[str, str, str], left: ast.expr, right: ast.expr) -> tuple[str, str]:
    """Return queries and keys of an einsum, in the order in which the call takes their dimensions.

    Raises:
        ValueError: it is no product of queries and keys.
    """
    first, second, out = letters
    if len(out) < 2:
        raise ValueError
    rows, columns = out[-2], out[-1]
    if rows in second:
        first, second, left, right = second, first, right, left
    (summed,) = {*first} & {*second} - {*out} or {""}
    q, k = (_in_brackets(ast.unparse(each)) for each in (left, right))
    return (permuted(q, first, f"{out[:-2]}{rows}{summed}"), permuted(k, second, f"{out[:-2]}{columns}{summed}"))


def _opposite(condition: ast.expr) -> str:
    """Return where a condition does not hold, as an expression."""
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Invert):
        return ast.unparse(condition.operand)
    if isinstance(condition, ast.Compare) and isinstance(condition.ops[0], ast.Eq) and len(condition.ops) == 1:
        return f"{ast.unparse(condition.left)} != {ast.unparse(condition.comparators[0])}"
    return f"{_in_brackets(ast.unparse(condition))}.logical_not()"


def _in_brackets(text: str) -> str:
    node = ast.parse(text, mode="eval").body if text else None
    whole = node is None or isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
    return text if whole else f"({text})"
