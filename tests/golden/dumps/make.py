#!/usr/bin/env python3
"""Writes the dumps in this folder, by the programs that write them in production, and expected.json:
what those programs themselves read in them.

Usage: make.py [FOLDER]   (needs numpy, ml_dtypes, safetensors, huggingface_hub and torch for the CPU; the
build and CI need none of them). Written with numpy 2.4.6, ml_dtypes 0.6.0, safetensors 0.8.0,
huggingface_hub 2.4.0 and torch 2.15.0.

expected.json: file -> {"kind", "tensors": [{"key", "dtype", "shape", "bits"}], "skipped": [key...],
"metadata": {...}}. dtype is nanscope's name; bits are the elements as f32 bit patterns, row-major, every
NaN as 0x7fffffff. dtypes.json: dtype -> raw bytes in hexadecimal and the same kind of bits.
"""
import collections
import datetime
import io
import json
import pathlib
import sys
import warnings
import zipfile

import ml_dtypes
import numpy as np
import safetensors.torch
import torch
from huggingface_hub import save_torch_state_dict

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
expected = {}
NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2", "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2fnuz": "e5m2fnuz",
    "float8_e8m0fnu": "e8m0", "float4_e2m1fn_x2": "e2m1", "float4_e2m1fn": "e2m1_unpacked",
    "float6_e3m2fn": "e3m2", "float6_e2m3fn": "e2m3", "int8": "i8", "int16": "i16", "int32": "i32",
    "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool",
}
VALUES = np.array([0.0, -0.0, 1.0, -1.5, 448.0, 0.1, np.pi, -1e-9, 65504.0, 1e-7, np.inf, np.nan])
WIDE = np.array([1e300, -1e300, 3.4028235677973366e38, 3.40282356e38, 1e-46, 5e-324, 2.0**-149 * 1.5])


def bits_of(array):
    """f32 bit patterns of a NumPy or ml_dtypes array."""
    with np.errstate(all="ignore"):
        wide = np.ascontiguousarray(array).astype(np.float32)
    bits = wide.reshape(-1).view(np.uint32).copy()
    bits[np.isnan(wide.reshape(-1))] = 0x7FFFFFFF
    return [int(b) for b in bits]


def as_numpy(tensor):
    """A torch tensor as an array of the same values; fp8 and fp4 through their bytes and ml_dtypes."""
    name = str(tensor.dtype).removeprefix("torch.")
    tensor = tensor.detach().contiguous()
    if name == "float4_e2m1fn_x2":
        pairs = tensor.view(torch.uint8).numpy()
        halves = np.stack([pairs & 15, pairs >> 4], axis=-1)
        return halves.reshape(*pairs.shape[:-1], -1).view(ml_dtypes.float4_e2m1fn)
    if name == "bfloat16" or name.startswith("float8"):
        return tensor.view(torch.int16 if name == "bfloat16" else torch.uint8).numpy().view(getattr(ml_dtypes, name))
    return tensor.numpy()


def entry(key, array, dtype=None):
    return {"key": key, "dtype": dtype or NAMES[array.dtype.name], "shape": list(array.shape), "bits": bits_of(array)}


def torch_entry(key, tensor):
    return entry(key, as_numpy(tensor), NAMES[str(tensor.dtype).removeprefix("torch.")])


def expect(name, kind, tensors, skipped=(), metadata=None):
    expected[name] = {"kind": kind, "tensors": tensors, "skipped": sorted(skipped), "metadata": metadata or {}}


def write_dtypes():
    rows = {}
    codes = np.arange(256, dtype=np.uint8)
    for name in ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]:
        rows[NAMES[name]] = codes.view(getattr(ml_dtypes, name))
    rows["e2m1_unpacked"] = codes[:16].view(ml_dtypes.float4_e2m1fn)
    rows["e3m2"] = codes[:64].view(ml_dtypes.float6_e3m2fn)
    rows["e2m3"] = codes[:64].view(ml_dtypes.float6_e2m3fn)
    rows["bf16"] = VALUES.astype(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        for name in ["f2", "f4", "f8"]:
            array = np.concatenate([VALUES, WIDE]).astype("<" + name)
            rows[NAMES[array.dtype.name]] = array
    for name in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]:
        limits = np.iinfo(name)
        odd = [limits.max // 3, min(limits.max, 2**24 + 1), min(limits.max, 2**25 + 2)]
        array = np.array([limits.min, limits.max, 0, 1, *odd], dtype="<" + name)
        rows[NAMES[array.dtype.name]] = array
    rows["bool"] = np.array([True, False, True])
    out = {name: {"bytes": array.tobytes().hex(), "bits": bits_of(array)} for name, array in rows.items()}
    packed = torch.arange(256, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    out["e2m1"] = {"bytes": bytes(range(256)).hex(), "bits": bits_of(as_numpy(packed))}
    (folder / "dtypes.json").write_text(json.dumps(out, sort_keys=True) + "\n")


def torch_values():
    """A tensor of every dtype that torch has."""
    base = torch.tensor(VALUES, dtype=torch.float64).reshape(3, 4)
    tensors = collections.OrderedDict()
    for dtype in [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
                  torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]:
        tensors[NAMES[str(dtype)[6:]]] = base.to(torch.float32).to(dtype) if dtype != torch.float64 else base.clone()
    tensors["e8m0"] = torch.tensor([0, 127, 200, 255], dtype=torch.uint8).view(torch.float8_e8m0fnu)
    tensors["e2m1"] = torch.tensor([[0x21, 0x43], [0x65, 0xF7]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    for dtype in [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]:
        limits = torch.iinfo(dtype)
        tensors[NAMES[str(dtype)[6:]]] = torch.tensor([limits.min, limits.max, 7], dtype=dtype)
    tensors["bool"] = torch.tensor([True, False, True])
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 3)
    return tensors


def write_safetensors():
    tensors = torch_values()
    complex_too = dict(tensors, complex=torch.tensor([1 + 2j]))
    safetensors.torch.save_file(complex_too, folder / "all.safetensors", metadata={"step": "7"})
    expect("all.safetensors", "safetensors", [torch_entry(k, v) for k, v in tensors.items()]
           + [torch_entry("complex", torch.view_as_real(complex_too["complex"]))], [],
           {"step": "7"})
    state = {f"model.layers.{i}.weight": torch.arange(4.0).reshape(2, 2) + i for i in range(3)}
    sharded = folder / "sharded"
    sharded.mkdir(exist_ok=True)
    for old in sharded.iterdir():
        old.unlink()
    save_torch_state_dict(state, str(sharded), max_shard_size=32)
    expect("sharded/model.safetensors.index.json", "safetensors-index", [torch_entry(k, v) for k, v in state.items()],
           metadata={"total_size": "48"})


def write_npy():
    matrix = np.arange(6, dtype="<f4").reshape(2, 3) - 2.5
    arrays = {
        "f32": matrix, "f64": np.concatenate([VALUES, WIDE]), "scalar": np.array(-3.5, "<f4"),
        "empty": np.zeros((0, 5), "<f2"), "bool": np.array([True, False]), "i64": np.array([2**40 + 1, -1]),
        "fortran": np.asfortranarray(np.arange(24, dtype="<f8").reshape(2, 3, 4)),
        "bf16": matrix.astype(ml_dtypes.bfloat16), "e5m2": matrix.astype(ml_dtypes.float8_e5m2),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        expect(f"{name}.npy", "npy", [entry("", array)])
    e4m3 = matrix.astype(ml_dtypes.float8_e4m3fn)
    np.save(folder / "e4m3.npy", e4m3)  # the file does not say which 8-bit type it is
    expect("e4m3.npy", "npy", [entry("", e4m3.view(np.uint8))])
    for version in [(2, 0), (3, 0)]:
        with open(folder / f"version{version[0]}.npy", "wb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.lib.format.write_array(file, matrix, version=version)
        expect(f"version{version[0]}.npy", "npy", [entry("", matrix)])
    for name, array in {"big_endian": matrix.astype(">f4"), "text": np.array(["ab", "c"]),
                        "object": np.array([{}, None], object), "record": np.zeros(2, [("a", "<f4"), ("b", "i1", (2,))]),
                        }.items():
        np.save(folder / f"refused_{name}.npy", array, allow_pickle=True)


    np.save(folder / "complex.npy", matrix.astype("c8"))
    expect("complex.npy", "npy", [entry("", matrix.astype("c8").view("<f4").reshape(2, 3, 2))])


def write_npz():
    matrix = np.arange(6, dtype="<f4").reshape(2, 3)
    arrays = {"layer.0/q": matrix, "fortran": np.asfortranarray(matrix), "zeros": np.zeros(3000, "<f2"),
              "bf16": matrix.astype(ml_dtypes.bfloat16), "scalar": np.array(7, "<i8")}
    entries = [entry(k, v) for k, v in arrays.items()]
    names = np.array(["a", "b"])
    np.savez(folder / "stored.npz", names=names, **{k: v for k, v in arrays.items() if k != "zeros"})
    expect("stored.npz", "npz", [e for e in entries if e["key"] != "zeros"], ["names"])
    np.savez_compressed(folder / "compressed.npz", names=names, **arrays)
    expect("compressed.npz", "npz", entries, ["names"])
    for name, method in [("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)]:
        # Written to something that cannot seek: sizes stand behind the data instead of before it.
        with io.BytesIO() as buffer:
            stream = type("Stream", (), {"write": staticmethod(buffer.write), "flush": lambda self: None})()
            with zipfile.ZipFile(stream, "w", method) as archive:
                array = io.BytesIO()
                np.save(array, matrix)
                for name_inside, data in [("folder/", b""), ("folder/a.npy", array.getvalue()), ("readme.txt", b"about")]:
                    info = zipfile.ZipInfo(name_inside)  # of 1980, so that the same bytes are written again
                    info.compress_type = method
                    archive.writestr(info, data)
            (folder / f"streamed_{name}.zip").write_bytes(buffer.getvalue())
        expect(f"streamed_{name}.zip", "npz", [entry("folder/a", matrix)], ["readme.txt"])


def save_pt(name, value, **options):
    torch.serialization.set_crc32_options(True)
    torch.save(value, folder / name, **options)


def write_pt():
    tensors = torch_values()
    save_pt("all.pt", tensors)
    expect("all.pt", "pt", [torch_entry(k, v) for k, v in tensors.items()])
    base = torch.arange(24.0).reshape(4, 6)
    views = {"base": base, "tail": base[2:], "columns": base[:, 1::2], "transposed": base.t(), "one": base[3, 5],
             "none": base[4:], "row": base[1].expand(3, 6), "pairs": tensors["e2m1"].t()}
    nested = {"model": {"layers": [views, (base[0], {"deep": tensors["i64"]})]}, 7: tensors["bool"],
              "step": 3, "loss": 0.5, "name": "run", "flag": True, "nothing": None, "shape": base.shape,
              "dtype": torch.float16, "seed": 2**64, "device": torch.device("cuda", 1),
              "parameter": torch.nn.Parameter(base[:2, :2].clone()), "complex": torch.tensor([1j]),
              "wide": torch.ones(1).expand(1000, 1000), "conjugate": torch.tensor([1 + 2j]).conj().imag}
    layers = [torch_entry(f"model.layers.0.{k}", v) for k, v in views.items()]
    layers += [torch_entry("model.layers.1.0", base[0]), torch_entry("model.layers.1.1.deep", tensors["i64"])]
    layers += [torch_entry("7", tensors["bool"]), torch_entry("parameter", nested["parameter"])]
    layers += [torch_entry("complex", torch.view_as_real(nested["complex"]))]
    metadata = {"step": "3", "loss": "0.5", "name": "run", "flag": "True", "nothing": "None", "shape": "[4, 6]",
                "dtype": "torch.float16", "seed": "a number of 9 bytes", "device": "cuda:1"}
    for protocol in [2, 3, 4, 5]:
        save_pt(f"nested{protocol}.pt", nested, pickle_protocol=protocol)
        expect(f"nested{protocol}.pt", "pt", layers, ["wide", "conjugate"], metadata)
    single = torch.arange(3.0)
    single.note = "an attribute"  # saved through _rebuild_from_type_v2
    save_pt("single.pth", single)
    expect("single.pth", "pt", [torch_entry("", single)])
    state = torch.nn.Linear(2, 3).state_dict()
    with torch.no_grad():
        for tensor in state.values():
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape))
    save_pt("state_dict.pth", state)
    expect("state_dict.pth", "pt", [torch_entry(k, v) for k, v in state.items()])
    # These two hold addresses of memory and differ each time.
    save_pt("refused_legacy.pt", base, _use_new_zipfile_serialization=False)
    save_pt("refused_object.pt", {"a": base, "when": datetime.date(2025, 1, 1)})
    save_pt("refused_module.pt", torch.nn.Linear(1, 1))


def write_raw():
    """The manifest is nanscope's own format; bytes and values are NumPy's."""
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    matrix = np.arange(6, dtype="<f4").reshape(2, 3) - 2.5
    arrays = {"a": matrix, "b": matrix.astype(ml_dtypes.bfloat16), "c": matrix.astype(ml_dtypes.float8_e4m3fn)}
    entries, data = [], b""
    for name, array in arrays.items():
        entries.append({"name": name, "file": "data.bin", "dtype": NAMES[array.dtype.name], "shape": list(array.shape),
                        "offset": len(data)})
        data += array.tobytes()
    (raw / "data.bin").write_bytes(data)
    (raw / "columns.bin").write_bytes(matrix.T.tobytes())
    entries.append({"name": "d", "file": "columns.bin", "dtype": "torch.float32", "shape": [2, 3], "order": "F", "step": 7})
    tensors = [entry(name, array) for name, array in arrays.items()] + [entry("d", matrix)]
    (raw / "manifest.json").write_text(json.dumps({"tensors": entries, "model": "small"}))
    expect("raw/manifest.json", "raw", tensors, metadata={"model": "small", "d.step": "7"})
    (raw / "manifest.jsonl").write_text("".join(json.dumps(e) + "\n" for e in entries))
    expect("raw/manifest.jsonl", "raw", tensors, metadata={"d.step": "7"})


write_dtypes()
write_raw()
write_pt()
write_npz()
write_safetensors()
write_npy()
for written in folder.rglob("*.safetensors"):
    written.chmod(0o644)
(folder / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
