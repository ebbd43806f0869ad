#!/usr/bin/env python3
"""Writes tests/unit/instrument/quantized/extra_states.safetensors: what TransformerEngine's modules put into a checkpoint as
`_extra_state`, for the weights of checkpoints/plain.

Needs torch (2.15.0 was used) and safetensors, which no test needs:
  python3 tests/unit/instrument/quantized/make_extra_states.py tests/unit/instrument/quantized

TransformerEngine needs a GPU to be made and is not used: the states are built as transformer_engine/pytorch/module/base.py
(get_extra_state) builds them, with classes of the same names as transformer_engine/common/recipe/__init__.py has.
  pickled.MODULE  a dictionary by pickle.dumps(), as since 1.10: the recipe, scales, histories, numbers
  saved.MODULE    the same without a recipe by torch.save(), as before
Others are of model.layers.0.mlp.up_proj: none, fresh (no step was counted), random (of another weight), nan, blocks (a recipe
without scales), hostile (a program).
"""
import copy
import enum
import io
import os
import pathlib
import pickle
import sys
import types
from dataclasses import dataclass
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file

recipes = types.ModuleType("transformer_engine.common.recipe")


class _FormatHelper(NamedTuple):
    max_fwd: float
    max_bwd: float


class Format(enum.Enum):
    E4M3 = _FormatHelper(max_fwd=448, max_bwd=448)
    HYBRID = _FormatHelper(max_fwd=448, max_bwd=57344)


@dataclass()
class DelayedScaling:
    margin: int = 0
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 4
    amax_compute_algo: str = "max"
    reduce_amax: bool = True


@dataclass()
class MXFP8BlockScaling:
    margin: int = 0
    fp8_format: Format = Format.E4M3


for made in (_FormatHelper, Format, DelayedScaling, MXFP8BlockScaling):
    made.__module__ = recipes.__name__
    setattr(recipes, made.__name__, made)
for module in ("transformer_engine", "transformer_engine.common", recipes.__name__):
    sys.modules.setdefault(module, recipes)


class Program:
    def __reduce__(self):
        return os.system, ("true",)


def state_of(amax):
    """Of a linear layer whose input, weight and output had these; the histories grow towards the last step."""
    forwards, backwards = torch.tensor([3.5, amax, 7.25]), torch.tensor([0.002, 0.001])
    steps = torch.tensor([1.0, 0.9, 0.8, 0.7])[:, None]
    return {"recipe": DelayedScaling(), "scale_fwd": 448 / forwards, "amax_history_fwd": steps * forwards,
            "scale_bwd": 57344 / backwards, "amax_history_bwd": steps * backwards,
            "extra_fp8_variables": {"fp8_checkpoint": True, "num_gemms": 1, "fp8_max_fwd": 448.0, "name": "linear"}}


def pickled(state):
    return torch.frombuffer(bytearray(pickle.dumps(state)), dtype=torch.uint8)


def saved(state):
    file = io.BytesIO()
    torch.save({key: value for key, value in state.items() if key != "recipe"}, file)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def main():
    folder = pathlib.Path(sys.argv[1])
    weights = load_file(folder / "checkpoints/plain/model.safetensors")
    states = {}
    for name, weight in weights.items():
        if name.endswith("proj.weight"):
            state = state_of(float(weight.abs().max()))
            states["pickled." + name[:-len(".weight")]] = pickled(state)
            states["saved." + name[:-len(".weight")]] = saved(state)
    fresh, nan = state_of(1), state_of(1)
    for key in ("scale_fwd", "scale_bwd"):
        fresh[key] = torch.ones_like(fresh[key])
    for key in ("amax_history_fwd", "amax_history_bwd"):
        fresh[key] = torch.zeros_like(fresh[key])
    nan["scale_fwd"][2] = float("nan")
    states |= {"none": pickled(None), "fresh": pickled(fresh), "random": pickled(state_of(0.0625)), "nan": pickled(nan),
               "blocks": pickled({"recipe": MXFP8BlockScaling(), "extra_fp8_variables": {"num_gemms": 1}}),
               "hostile": pickled(Program())}
    save_file(copy.copy(states), folder / "extra_states.safetensors")
    print(sum(one.numel() for one in states.values()))


main()
