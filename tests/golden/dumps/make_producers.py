#!/usr/bin/env python3
"""Writes the folders in producers/: small dumps as other programs lay them out, each with one fault.

Usage: make_producers.py [FOLDER]   (needs torch for the CPU and safetensors; the build and CI need neither).
Written with torch 2.15.0 and safetensors 0.8.0.

pytorch_hooks is taken with torch's own forward hooks and torch.save. The files of all others are written with
torch.save, safetensors and json as those programs call them, by the layout that their sources show; none of the
programs itself ran. docs/producers.md says which source that is.
"""
import json
import pathlib
import sqlite3
import struct
import sys

import torch
from safetensors.torch import save_file

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "producers")
WIDTH, TOKENS, VOCABULARY, LAYERS = 8, 3, 16, 2
torch.manual_seed(7)


class Norm(torch.nn.Module):
    """Divides by the root of a variance that nothing keeps from 0: the fault of all these dumps."""

    def __init__(self, broken=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))
        self.broken = broken

    def forward(self, x):
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) - (4 if self.broken else -1e-6)) * self.weight


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = torch.nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down_proj = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(torch.nn.functional.silu(gate) * up)


class DecoderLayer(torch.nn.Module):
    def __init__(self, broken):
        super().__init__()
        self.post_attention_layernorm = Norm(broken)
        self.mlp = Mlp()

    def forward(self, x):
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.layers = torch.nn.ModuleList([DecoderLayer(i == 1) for i in range(LAYERS)])
        self.norm = Norm()

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class CausalLM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Model()
        self.lm_head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        return self.lm_head(self.model(ids))


def forward(step):
    """(name, side, index, tensor) of each call of a module, in the order in which things happen."""
    torch.manual_seed(7)
    causal, calls = CausalLM(), []

    def before(name):
        return lambda module, args: calls.extend((name, "input", i, a.detach().clone()) for i, a in enumerate(args))

    def after(name):
        return lambda module, args, out: calls.append((name, "output", 0, out.detach().clone()))

    for name, module in causal.named_modules():
        if name:
            module.register_forward_pre_hook(before(name))
            module.register_forward_hook(after(name))
    with torch.no_grad():
        causal(torch.arange(TOKENS) + step)
    return causal, calls


def save(tensor, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tensor, path)


def pytorch_hooks():
    for step in range(2):
        tensors = {}
        for name, side, index, tensor in forward(step)[1]:
            tensors[f"{name}.{side}" + (f".{index}" if side == "input" else "")] = tensor
        save(tensors, folder / "pytorch_hooks" / f"step_{step}" / "tensors.pt")


def sglang_dumper():
    index = 0
    for step in range(2):
        for name, side, i, tensor in forward(step)[1]:
            index += 1
            sub = f"inputs.{i}" if side == "input" else "output"
            tags = {"step": step, "rank": 0, "dump_index": index, "name": f"non_intrusive__{name}.{sub}",
                    "recompute_status": "disabled"}
            file = "___".join(f"{k}={v}" for k, v in tags.items()) + ".pt"
            save({"value": tensor, "meta": {**tags, "world_rank": 0}}, folder / "sglang_dumper" / "dump_1" / file)


def forward_passes():
    """Written when `model` returns, so what comes after it stands in the next file."""
    rest = {}
    for step in range(3):
        current, rest = rest, {}
        for name, side, _, tensor in forward(step)[1]:
            if side == "output" and (name == "lm_head" or name == "model"):
                rest[name] = tensor
            elif side == "output" and name.count(".") != 2 and not name.endswith(".mlp"):
                current[name] = tensor
        current["model.forward_batch_info.input_ids"] = torch.arange(TOKENS) + step
        save(current, folder / "forward_passes" / "TP0_PP0_Rank0_pid4711" / f"Pass{step:05d}.pt")


def flashinfer(kind):
    root = folder / f"flashinfer_{kind}"
    root.mkdir(parents=True, exist_ok=True)
    session, sequence = [], {}

    def call(function, signature, arguments, result):
        sequence[function] = sequence.get(function, 0) + 1
        name = f"20260102_030405_{len(session):03d}_pid4711_{function}_call{sequence[function]:04d}"
        path = root / name
        path.mkdir(exist_ok=True)
        inputs = {f"arg_{i}": a for i, a in enumerate(arguments)}
        metadata = {"function_name": function, "module": "flashinfer.norm", "call_sequence": sequence[function],
                    "process_id": 4711, "input_metadata": {}, "output_metadata": {}, "tensor_format": kind,
                    "tensor_info": {"input_tensor_keys": list(inputs), "output_tensor_keys": []},
                    "function_signature": signature, "execution_status": "inputs_saved", "dump_dir": f"dumps/{name}"}
        lines = [json.dumps(metadata)]
        if result is not None:
            metadata["tensor_info"]["output_tensor_keys"] = ["result"]
            metadata["execution_status"] = "completed"
            lines.append(json.dumps(metadata))
        for stem, tensors in [("inputs", inputs), ("outputs", {"result": result})]:
            if result is None and stem == "outputs":
                continue
            if kind == "safetensors":
                save_file(tensors, path / f"{stem}.safetensors")
            else:
                torch.save(tensors, path / f"{stem}.pt")
        (path / "metadata.jsonl").write_text("".join(line + "\n" for line in lines))
        session.extend(lines)

    norm = "(input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-06, out=None) -> torch.Tensor"
    torch.manual_seed(7)
    x, weight = torch.randn(TOKENS, WIDTH), torch.ones(WIDTH)
    call("rmsnorm", norm, [x, weight], Norm()(x).detach())
    gate_up = torch.randn(TOKENS, 2 * WIDTH)
    call("silu_and_mul", "(input: torch.Tensor, out=None) -> torch.Tensor", [gate_up],
         torch.nn.functional.silu(gate_up[:, :WIDTH]) * gate_up[:, WIDTH:])
    call("rmsnorm", norm, [x + 1, weight], Norm(True)(x + 1).detach())
    call("rmsnorm", norm, [x, weight], None)
    (root / "session.jsonl").write_text("".join(line + "\n" for line in session))


def msprobe(kind):
    classes = {"embed_tokens": "Embedding", "norm": "Norm", "mlp": "Mlp", "lm_head": "Linear", "model": "Model"}
    for step in range(1 if kind == "tensor" else 2):
        causal, calls = forward(step)
        data, pending = {}, {}
        root = folder / f"msprobe_{kind}" / f"step{step}" / "rank0"

        def described(tensor, file):
            tensor = tensor.detach()
            entry = {"type": "torch.Tensor", "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
            if tensor.is_floating_point():
                figures = {"Max": tensor.max(), "Min": tensor.min(), "Mean": tensor.mean(), "Norm": tensor.norm()}
                # As text in the first step; the bare words that Python's json writes in the second.
                entry |= {k: (str(v.item()) if step == 0 and not v.isfinite() else v.item())
                          for k, v in figures.items()}
            else:
                entry |= {"Max": tensor.max().item(), "Min": tensor.min().item(), "Mean": None, "Norm": None}
            if kind == "tensor":
                entry["data_name"] = file + ".pt"
                save(tensor, root / "dump_tensor_data" / (file + ".pt"))
            return entry

        for name, side, _, tensor in calls:
            last = name.split(".")[-1]
            api = f"Module.{name}.{classes.get(last, 'DecoderLayer' if last.isdigit() else 'Linear')}.forward.0"
            if "layernorm" in last:
                api = f"Module.{name}.Norm.forward.0"
            if side == "input":
                pending[api] = tensor
            else:
                # An entry is written when its module returns.
                data[api] = {"input_args": [described(pending[api], api + ".input.0")], "input_kwargs": {},
                             "output": [described(tensor, api + ".output.0")]}
                parameters = dict(causal.get_submodule(name).named_parameters(recurse=False))
                if parameters:
                    data[api]["parameters"] = {k: described(v, f"{api}.parameters.{k}") for k, v in parameters.items()}
        root.mkdir(parents=True, exist_ok=True)
        directory = {"task": kind, "level": "L0", "framework": "pytorch", "dump_data_dir": None, "data": data}
        (root / "dump.json").write_text(json.dumps(directory, indent=1))
        (root / "stack.json").write_text("{}")
        (root / "construct.json").write_text("{}")


def msprobe_graph():
    """What `msprobe graph_visualize` makes of a dump.json: python/msprobe/visualization/db_utils.py has the columns,
    builder/msprobe_adapter.py makes texts of all numbers. The second graph is that of a comparison."""
    columns = {"id": "TEXT PRIMARY KEY", "graph_id": "TEXT NOT NULL", "node_order": "INTEGER NOT NULL",
               "node_name": "TEXT NOT NULL", "node_type": "TEXT NOT NULL", "up_node": "TEXT", "sub_nodes": "TEXT",
               "precision_index": "INTEGER", "overflow_level": "TEXT", "micro_step_id": "INTEGER NOT NULL",
               "matched_node_link": "TEXT", "stack_id": "TEXT", "parallel_merge_info": "TEXT",
               "matched_distributed": "TEXT", "modified": "INTEGER NOT NULL", "input_data": "TEXT",
               "output_data": "TEXT", "data_source": "TEXT", "dump_data_dir": "TEXT", "step": "INTEGER NOT NULL",
               "rank": "INTEGER NOT NULL", "is_distributed": "INTEGER"}
    path = folder / "msprobe_graph" / "compare_20260102030405.vis.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.execute(f"CREATE TABLE tb_nodes ({', '.join(f'{k} {v}' for k, v in columns.items())})")

    def shown(tensor):
        texts = {k: str("null" if v is None else v) for k, v in tensor.items()}
        return {"value": "null"} if texts.get("Max") == "null" else texts

    for step in range(2):
        source = folder / "msprobe_statistics" / f"step{step}" / "rank0" / "dump.json"
        for order, (name, entry) in enumerate(json.loads(source.read_text())["data"].items()):
            inputs = {f"{name}.input.{i}": shown(t) for i, t in enumerate(entry["input_args"])}
            inputs |= {f"{name}.parameters.{k}": shown(t) for k, t in entry.get("parameters", {}).items()}
            outputs = {f"{name}.output.{i}": shown(t) for i, t in enumerate(entry["output"])}
            for run in ("NPU", "Bench"):
                row = (f"{run}_{step}_0_{name}", f"{run}_{step}_0", order, name, "0", "", "", None, None, 0, "[]", "0", "",
                       "{}", 0, json.dumps(inputs), json.dumps(outputs), run, "", step, 0, 0)
                database.execute(f"INSERT INTO tb_nodes VALUES ({', '.join('?' * len(row))})", row)
    database.commit()
    database.close()


def transformer_engine():
    """Dots of names are written as '_'."""
    for step in range(2):
        root = folder / "transformer_engine" / "tensor_dumps" / "rank_0" / f"iter_{step:06d}"
        torch.manual_seed(7)
        for layer in range(LAYERS):
            prefix = f"decoder_layers_{layer}_layernorm_mlp"
            activation = torch.randn(TOKENS, WIDTH)
            weight = torch.randn(2 * WIDTH, WIDTH)
            out = activation @ weight.T
            if layer == 1:
                out[1, 2] = float("nan")
            save({"high_precision": activation}, root / f"{prefix}_fc1_activation.pt")
            save({"high_precision": weight}, root / f"{prefix}_fc1_weight.pt")
            save({"high_precision": out}, root / f"{prefix}_fc1_output.pt")


def tensorrt_llm():
    """The hooks number the modules of each parent in the order in which they run."""
    classes = {"model": "LlamaModel", "embed_tokens": "Embedding", "layers": "LlamaDecoderLayer", "mlp": "GatedMLP",
               "gate_up_proj": "Linear", "down_proj": "Linear", "norm": "RMSNorm", "lm_head": "LMHead",
               "post_attention_layernorm": "RMSNorm"}
    for step in range(1):
        tree, count = [f"{step + 1}.LlamaForCausalLM"], [0]
        for name, side, index, tensor in forward(step)[1]:
            parts = name.split(".")
            kind = classes["layers" if parts[-1].isdigit() else parts[-1]]
            if side == "input":
                count[-1] += 1
                tree.append(f"{count[-1]}.{kind}")
                count.append(0)
            argument = "input.x" if side == "input" else "output.0"
            save(tensor, folder / "tensorrt_llm" / "rank0" / f"{'-'.join(tree)}-{argument}.pt")
            if side == "output":
                tree.pop()
                count.pop()


def llamacpp():
    root = folder / "llamacpp"
    root.mkdir(parents=True, exist_ok=True)
    logits = [float("nan")] * VOCABULARY
    (root / "llamacpp-tiny.bin").write_bytes(struct.pack(f"<{VOCABULARY}f", *logits))
    (root / "llamacpp-tiny-tokens.bin").write_bytes(struct.pack(f"<{TOKENS}i", *range(TOKENS)))
    (root / "llamacpp-tiny-prompt.txt").write_text(f"prompt: a\nn_tokens: {TOKENS}\ntoken ids: 0, 1, 2\n")


def checkpoint():
    root = folder / "checkpoint"
    root.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    tensors = {}
    for name in ["q_proj", "k_proj"]:
        tensors[f"model.layers.0.self_attn.{name}.weight"] = torch.randn(WIDTH, WIDTH).to(torch.float8_e4m3fn)
    tensors["model.layers.0.self_attn.q_proj.weight_scale_inv"] = torch.tensor([[0.5]])
    tensors["model.norm.weight"] = torch.ones(WIDTH)
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, root / "model.safetensors")
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 1,
              "quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 8]}}
    (root / "config.json").write_text(json.dumps(config, indent=1))


pytorch_hooks()
sglang_dumper()
forward_passes()
flashinfer("torch")
flashinfer("safetensors")
msprobe("tensor")
msprobe("statistics")
msprobe_graph()
transformer_engine()
tensorrt_llm()
llamacpp()
checkpoint()
