"""Tensors of torch: read where they lie, in all its dtypes."""

import numpy as np
import pytest

import nanscope

torch = pytest.importorskip("torch")


def dtypes():
    names = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


@pytest.mark.parametrize("dtype", dtypes(), ids=str)
def test_every_code_is_counted_as_torch_counts_it(dtype):
    if dtype.itemsize == 1:
        tensor = torch.arange(256, dtype=torch.uint8).view(dtype)
    elif dtype.itemsize == 2:
        tensor = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    else:
        tensor = torch.tensor([1, float("nan"), float("inf"), -float("inf"), 0, -0.0, 1e-45])
    values = tensor.to(torch.float64)
    health = nanscope.scan(tensor)
    assert health.count == tensor.numel()
    assert health.nan == values.isnan().sum()
    assert health.inf == values.isinf().sum()
    assert health.zero == (values == 0).sum()
    assert health.absmax == values[values.isfinite()].abs().max()


def test_a_tensor_is_not_copied():
    from nanscope._arrays import describe

    tensor = torch.zeros(64, 64, dtype=torch.bfloat16)
    assert describe(tensor).bytes.ctypes.data == tensor.data_ptr()


def test_gradients_and_strides():
    tensor = torch.arange(12.0).reshape(3, 4).requires_grad_()
    assert nanscope.scan(tensor).max == 11
    broken = tensor.detach().clone()
    broken[2, 1] = float("nan")
    assert nanscope.scan(broken.T).first_bad_index == (1, 2)
    assert nanscope.scan(torch.tensor(3.0)).shape == ()
    assert nanscope.scan(torch.zeros(0, 3)).count == 0


def test_what_has_no_elements_of_its_own_is_refused():
    with pytest.raises(TypeError, match="dense"):
        nanscope.scan(torch.eye(3).to_sparse())
    with pytest.raises(TypeError, match="meta"):
        nanscope.scan(torch.zeros(3, device="meta"))


def test_a_state_of_torch_is_diagnosed(faulty):
    found = nanscope.diagnose({name: torch.from_numpy(array) for name, array in faulty.items()})
    assert found.to_dict() == nanscope.diagnose(faulty).to_dict()


def test_bfloat16_is_diagnosed(faulty):
    found = nanscope.diagnose({name: torch.from_numpy(array).bfloat16() for name, array in faulty.items()})
    assert found.root_cause.tensor.startswith("model.layers.0.input_layernorm")


def test_bits_of_a_tensor():
    tensor = torch.tensor([430.0, 1.0])
    assert [number.value for number in nanscope.bits(tensor, torch.float8_e4m3fn)] == [416, 1]
    assert [number.code for number in nanscope.bits(tensor.to(torch.float8_e4m3fn))] == [0x7D, 0x38]


def test_capture_is_part_of_the_package(tmp_path):
    class Broken(torch.nn.Module):
        def forward(self, x):
            return x / torch.zeros_like(x)

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Broken())
    with nanscope.capture.attach(model, str(tmp_path / "dump")):
        model(torch.zeros(2, 4))
    assert (tmp_path / "dump" / "step_00000" / "tensors.safetensors").exists()
    with nanscope.open(tmp_path / "dump") as run:
        assert run.first_bad is not None
        assert run.first_bad.name.endswith("1.output")
        assert np.isinf(run.first_bad.numpy()).any() or np.isnan(run.first_bad.numpy()).any()
