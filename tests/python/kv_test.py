"""nanscope.quantize_kv(): rows of a quantized KV cache."""

import numpy as np
import pytest

import nanscope

SCENARIO = """
name = "kv-scheme"
title = "A cache under a scheme"
text = "Its keys and values are read back."

[model]
weights = "random"
layers = 1
width = 64
heads = 4
kv_heads = 2
head_dim = 16
mlp_width = 64

[kv]
scheme = "{scheme}"

[[request]]
name = "one"
text = "the lamp turns above the water"
max_tokens = 1

[expect]
verdict = "{verdict}"
"""


@pytest.mark.parametrize("scheme", ["vllm-int8-per-token-head", "per-step", "sglang-mxfp8", "vllm-fp8"])
def test_has_the_bits_of_the_engines_cache(command, tmp_path, scheme):
    (tmp_path / "kv-scheme.toml").write_text(SCENARIO.format(scheme=scheme, verdict="clean"))
    done = command.run("run", "kv-scheme.toml", "-o", "kv.nanscope", "--capture", "all", "--brief", cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    with nanscope.open(tmp_path / "kv.nanscope") as run:
        (store,) = [op for op in run.steps[0].ops if op.kind == "kv_store"]
        (read,) = [op for op in run.steps[0].ops if op.kind == "kv_read"]
        for role in ("k", "v"):
            rows = next(one.tensor for one in store.inputs if one.role == role).numpy()
            back = next(out for out in read.outputs if out.role == f"{role}_read").numpy()
            made = nanscope.quantize_kv(rows, scheme, kv_heads=2, keys=role == "k")
            tokens = len(rows)
            assert np.array_equal(made.values.view(np.uint32), back[:tokens].view(np.uint32)), role
            assert made.elements == rows.size


def test_counts_what_storing_did():
    rows = np.ones((2, 1, 32), np.float32)
    rows[0, 0, 0] = 1000
    made = nanscope.quantize_kv(rows, "e4m3,axis=tensor,lifetime=fixed,scale=1")
    assert made.clipped == 1
    assert made.values[0, 0, 0] == 448
    assert nanscope.quantize_kv(rows, made.scheme).values[0, 0, 0] == 448


def test_takes_what_policies_are_called():
    rows = np.linspace(-1, 1, 8 * 32, dtype=np.float32).reshape(8, 32)
    names = nanscope.kv_policies()
    assert len(names) > 10
    for name in names:
        try:
            made = nanscope.quantize_kv(rows, name, kv_heads=2, keys=False)
        except nanscope.Error as error:
            assert "\n" not in str(error)  # a policy that does not fit these rows says so in one line
            continue
        assert made.values.shape == rows.shape


def test_refuses_other_rows():
    with pytest.raises(ValueError, match="expected \\(tokens, kv_heads, head_dim\\)"):
        nanscope.quantize_kv(np.zeros(3, np.float32), "int8,axis=token")
    with pytest.raises(ValueError, match="at least one element"):
        nanscope.quantize_kv(np.zeros((0, 1, 4), np.float32), "int8,axis=token")
    with pytest.raises(TypeError, match="got i32"):
        nanscope.quantize_kv(np.zeros((1, 1, 4), np.int32), "int8,axis=token")
    with pytest.raises(nanscope.Error, match="int9"):
        nanscope.quantize_kv(np.zeros((1, 1, 4), np.float32), "int9")


def test_halves_are_read_as_they_are():
    rows = np.linspace(-2, 2, 64, dtype=np.float16).reshape(4, 1, 16)
    half = nanscope.quantize_kv(rows, "int8,axis=token")
    full = nanscope.quantize_kv(rows.astype(np.float32), "int8,axis=token")
    assert np.array_equal(half.values, full.values)
