"""How far rounding to bf16 can move the logits of a transformers model: first-order propagation of every rounding.

Each op of the model in bf16 whose result is stored in bf16 multiplies each element x_j of it by 1 + d_j, |d_j| <= u = 2^-8
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 2.2). To first order logit i moves by the sum over
all elements of all ops of (d logit_i / d x_j) x_j d_j. With the d_j taken as independent and of mean zero it exceeds
lambda u sqrt(sum of squares) with probability at most 2 exp(-lambda^2 / 2) (Higham and Mary, SIAM J. Sci. Comput. 41(5),
2019, from Hoeffding's inequality); lambda = 4 and u are those of instrument/recompute/bounds.h. The derivatives are
automatic ones of the same model in f32 with the same weights: nothing is fitted to what any bf16 run gives.
"""

import torch
from torch.overrides import TorchFunctionMode

LAMBDA = 4.0
U = 2.0 ** -8

# Results are copies, views or choices of what was rounded before. Any other op counts as one that rounds.
COPIES = {"view", "reshape", "transpose", "permute", "expand", "contiguous", "unsqueeze", "squeeze", "flatten", "chunk", "split",
          "cat", "stack", "repeat", "repeat_interleave", "clone", "detach", "gather", "index_select", "embedding", "dropout", "where",
          "masked_fill", "zeros_like", "unbind", "t", "neg", "__get__", "__getitem__", "__setitem__", "__neg__", "full", "zeros",
          "tensor", "topk", "max", "arange", "copy_", "unflatten", "narrow", "index_put_"}
CASTS = {"to", "type_as", "type", "float", "bfloat16"}


def tensors_of(out):
    return [one for one in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(one, torch.Tensor)]


class Calls(TorchFunctionMode):
    """Follows the calls of a model's run whose results are numbers; `see(name, arguments, result)` may replace a result."""

    def __init__(self, see):
        super().__init__()
        self.see = see

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if not any(one.is_floating_point() for one in tensors_of(out)):
            return out
        return self.see(getattr(function, "__name__", ""), args, kwargs or {}, out)


def run(model, tokens):
    """Logits, tokens x vocabulary, in one step; with LongRoPE in two, as its angles change with the length of a run and those
    of keys in the cache do not."""
    rope = getattr(model.config, "rope_parameters", None) or {}
    first = rope["original_max_position_embeddings"] if rope.get("rope_type") == "longrope" else len(tokens)
    past, rows = None, []
    for part in tokens.split([min(first, len(tokens)), max(0, len(tokens) - first)]):
        if len(part) > 0:
            out = model(input_ids=part[None], past_key_values=past, use_cache=True)
            past = out.past_key_values
            rows.append(out.logits[0])
    return torch.cat(rows)


def roundings(model, tokens):
    """The calls of a run in bf16, in order: name and whether their result is rounded."""
    calls = []

    def see(name, args, _, out):
        cast = name in CASTS and isinstance(args[0], torch.Tensor) and args[0].dtype != torch.bfloat16
        result = tensors_of(out)[0]
        calls.append((name, result.dtype == torch.bfloat16 and (cast or name not in COPIES | CASTS)))
        return out

    with torch.no_grad(), Calls(see):
        run(model, tokens)
    return calls


class Perturbed:
    """A run in f32 whose results are multiplied by 1 + d, d = 0, where the run in bf16 rounds. Both models have run over the
    same tokens before, or the calls that LongRoPE makes once differ."""

    def __init__(self, in_bf16, in_f32, tokens):
        self.deltas = []
        self.margins = []  # of each choice of experts, by token: how far the last chosen is ahead of the next
        self.at = 0
        self.calls = roundings(in_bf16, tokens)
        with torch.enable_grad(), Calls(self.see):
            self.logits = run(in_f32, tokens)
        if self.at != len(self.calls):
            raise RuntimeError("the runs in f32 and in bf16 make different calls")

    def see(self, name, args, kwargs, out):
        if self.at >= len(self.calls) or self.calls[self.at][0] != name:
            raise RuntimeError(f"call {self.at} is {name} in f32, {self.calls[self.at:][:1]} in bf16")
        rounds = self.calls[self.at][1]
        self.at += 1
        if name == "topk":
            chosen = kwargs.get("k", args[1] if len(args) > 1 else None)
            if chosen < args[0].shape[-1]:
                best = args[0].topk(chosen + 1, dim=-1).values
                self.margins.append((best[..., chosen - 1] - best[..., chosen]).reshape(-1))
        if not rounds:
            return out
        # Tables of cosines are made without gradients, which would leave their rounding out.
        with torch.enable_grad():
            delta = torch.zeros_like(out, requires_grad=True)
            self.deltas.append(delta)
            if name.endswith("_") and not name.endswith("__"):
                return out.mul_(1 + delta)
            return out * (1 + delta)

    def bound(self, outputs, at_once=64):
        """Of each of `outputs`, which are functions of this run."""
        flat = outputs.reshape(-1)
        squares = torch.zeros(len(flat), dtype=torch.float64)
        for first in range(0, len(flat), at_once):
            count = min(at_once, len(flat) - first)
            rows = torch.zeros(count, len(flat))
            rows[torch.arange(count), torch.arange(first, first + count)] = 1
            slopes = torch.autograd.grad(flat, self.deltas, rows, retain_graph=True, is_grads_batched=True, allow_unused=True)
            for slope in slopes:
                if slope is not None:
                    squares[first:first + count] += slope.double().reshape(count, -1).square().sum(1)
        return (LAMBDA * U * squares.sqrt()).reshape(outputs.shape)

    def may_all_be_certain(self):
        """False where rounding can change one of the closest choices of experts: quicker than certain_tokens()."""
        if not self.margins:
            return True
        margins = torch.cat(self.margins)
        closest = margins.topk(min(4, len(margins)), largest=False).values
        return bool((closest.double() > self.bound(closest)).all())

    def certain_tokens(self):
        """How many there are before the first whose choice of experts rounding can change."""
        if not self.margins:
            return len(self.logits)
        layers = sum(len(one) == len(self.margins[0]) for one in self.margins)
        margins = torch.cat([torch.stack(self.margins[at:at + layers], 1) for at in range(0, len(self.margins), layers)])
        close = (margins.double() <= self.bound(margins)).any(1).nonzero()
        return int(close[0]) if len(close) > 0 else len(self.logits)
