"""`nanscope verify` on dumps by transformers, and on what is wrong. usage: verify_test.py NANSCOPE

The dumps of tests/golden/verify were made by verify_dumps.py --golden; each says in expected.json what was planted and by
which versions it was made. Needs nothing but Python.
"""

import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden", "verify")
CHECKPOINTS = os.path.join(HERE, "..", "unit", "instrument", "model", "checkpoints")
QUANTIZED = os.path.join(HERE, "..", "unit", "instrument", "quantized", "checkpoints")
HEAD = 8  # channels of a head, of all tiny checkpoints
NANSCOPE = ""


def expected_of(name):
    with open(os.path.join(GOLDEN, name, "expected.json"), encoding="utf-8") as file:
        return json.load(file)


def model_of(name):
    """The case's own checkpoint, another case's, a producer's quantized one, or its family's."""
    checkpoint = expected_of(name).get("checkpoint", name)
    for folder in (os.path.join(GOLDEN, name, "model"), os.path.join(GOLDEN, checkpoint, "model"), os.path.join(QUANTIZED, checkpoint)):
        if os.path.isdir(folder):
            return folder
    return os.path.join(CHECKPOINTS, expected_of(name)["family"])


def casts_inputs(name):
    """Whether the checkpoint says that inputs of products are cast when it is served."""
    with open(os.path.join(model_of(name), "config.json"), encoding="utf-8") as file:
        groups = json.load(file).get("quantization_config", {}).get("config_groups", {})
    return any(group["input_activations"] for group in groups.values())


def verify(dump, model, *more):
    return subprocess.run([NANSCOPE, "verify", dump, "--model", model, *more], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False)


def golden(name, *more):
    return verify(os.path.join(GOLDEN, name, "dump"), model_of(name), *more)


def read_tensors(source):
    with open(source, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (one["dtype"], one["shape"], data[slice(*one["data_offsets"])]) for name, one in header.items()}


def write_tensors(tensors, target):
    header, at = {}, 0
    for name, (dtype, shape, bytes_) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(bytes_)]}
        at += len(bytes_)
    text = json.dumps(header).encode()
    os.makedirs(os.path.dirname(target))
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(bytes_ for _, _, bytes_ in tensors.values()))


def of_first_rank(source, target):
    """A step's tensors as the first of two ranks of tensor parallelism has them: half of the heads, the sums whole.

    Without probabilities, as fused kernels leave it."""
    tensors = read_tensors(source)
    for name, (dtype, shape, data) in tensors.items():
        if re.search(r"self_attn\.([qkv]_proj\.output|o_proj\.input)$", name):
            rows, width = shape[1], len(data) // shape[1]
            half = b"".join(data[row * width:row * width + width // 2] for row in range(rows))
            tensors[name] = (dtype, [1, rows, shape[2] // 2], half)
    write_tensors({name: one for name, one in tensors.items() if not name.endswith("self_attn.output.1")}, target)


def fused(source, target):
    """A step's tensors with QKV and gate and up fused, as vLLM has them: rows side by side."""
    tensors = read_tensors(source)
    for whole, parts in (("self_attn.qkv_proj", ("q_proj", "k_proj", "v_proj")), ("mlp.gate_up_proj", ("gate_proj", "up_proj"))):
        module = whole.split(".")[0]
        for layer in range(2):
            before = f"model.layers.{layer}."
            found = [tensors.pop(f"{before}{module}.{part}.output") for part in parts]
            inputs = [tensors.pop(f"{before}{module}.{part}.input") for part in parts]
            rows = found[0][1][1]
            lines = [b"".join(bytes_[len(bytes_) // rows * row:len(bytes_) // rows * (row + 1)] for _, _, bytes_ in found)
                     for row in range(rows)]
            width = sum(shape[2] for _, shape, _ in found)
            tensors[f"{before}{whole}.output"] = (found[0][0], [1, rows, width], b"".join(lines))
            tensors[f"{before}{whole}.input"] = inputs[0]
    write_tensors(tensors, target)


def in_pairs(source, target, spoilt=None):
    """The projections of a step's attention, with the channels of each head of Q and K in pairs, as llama.cpp has them.

    spoilt: of this tensor, the first channels of all rows are 0."""
    tensors = {}
    for name, (dtype, shape, data) in read_tensors(source).items():
        if not re.search(r"self_attn\.[qkv]_proj\.(in|out)put$", name):
            continue
        if re.search(r"[qk]_proj\.output$", name):
            order = [head + half * HEAD // 2 + i for head in range(0, shape[-1], HEAD) for i in range(HEAD // 2) for half in (0, 1)]
            row = len(data) // shape[1]
            size = row // shape[-1]
            lines = [data[at:at + row] for at in range(0, len(data), row)]
            data = b"".join(line[size * i:size * (i + 1)] for line in lines for i in order)
            if name == spoilt:
                data = b"".join(bytes(4 * size) + data[at + 4 * size:at + row] for at in range(0, len(data), row))
        tensors[name] = (dtype, shape, data)
    write_tensors(tensors, target)


def padded(source, target):
    """A step of one token as a CUDA graph for two has it: a second row, whose attention is NaN, and what comes behind."""
    tensors = {}
    for name, (dtype, shape, data) in read_tensors(source).items():
        if name in ("block_table", "query_start_loc", "sampled_token_ids", "seq_lens") or not shape or name.startswith("logits"):
            tensors[name] = (dtype, shape, data)
            continue
        before = dtype != "F16" or re.search(r"embed_tokens|layers.0.input|qkv_proj|rotary_emb|attn\.input|self_attn\.input", name)
        more = struct.pack("<q", -1) if name == "slot_mapping" else data if before else b"\xff\x7f" * shape[-1]
        tensors[name] = (dtype, [2, *shape[1:]], data + more)
    write_tensors(tensors, target)


def floats(tensors, name):
    dtype, shape, data = tensors[name]
    assert dtype == "F32", name
    return struct.unpack(f"<{len(data) // 4}f", data)


def gguf_of(checkpoint, target):
    """The tiny Phi-3 as a GGUF file: names, keys and values as the format's description has them."""
    with open(os.path.join(checkpoint, "config.json")) as file:
        config = json.load(file)
    rope = config["rope_parameters"]
    head = config["hidden_size"] // config["num_attention_heads"]
    scale = config["max_position_embeddings"] / rope["original_max_position_embeddings"]
    amplitude = math.sqrt(1 + math.log(scale) / math.log(rope["original_max_position_embeddings"]))
    text = lambda value: struct.pack("<Q", len(value)) + value.encode()
    keys = {"general.architecture": (8, text("phi3"))}
    for key, value in {"block_count": config["num_hidden_layers"], "embedding_length": config["hidden_size"],
                       "feed_forward_length": config["intermediate_size"], "attention.head_count": config["num_attention_heads"],
                       "attention.head_count_kv": config["num_key_value_heads"], "attention.key_length": head,
                       "context_length": config["max_position_embeddings"],
                       "rope.dimension_count": int(head * rope["partial_rotary_factor"]),
                       "rope.scaling.original_context_length": rope["original_max_position_embeddings"]}.items():
        keys["phi3." + key] = (4, struct.pack("<I", value))
    for key, value in {"attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": rope["rope_theta"],
                       "rope.scaling.attn_factor": amplitude}.items():
        keys["phi3." + key] = (6, struct.pack("<f", value))
    tensors = {f"rope_factors_{which}.weight": (0, [len(rope[which + "_factor"])], struct.pack(f"<{len(rope[which + '_factor'])}f", *rope[which + "_factor"]))
               for which in ("long", "short")}
    parts = [("model.layers.", "blk."), ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output"),
             ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"), ("self_attn.qkv_proj", "attn_qkv"),
             ("self_attn.o_proj", "attn_output"), ("mlp.gate_up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")]
    for name, (dtype, shape, data) in read_tensors(os.path.join(checkpoint, "model.safetensors")).items():
        for ours, theirs in parts:
            name = name.replace(ours, theirs)
        tensors[name] = ({"F32": 0, "F16": 1, "BF16": 30}[dtype], shape[::-1], data)
    listed, data = b"", b""
    for name, (kind, shape, values) in tensors.items():
        listed += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += values + bytes(-len(values) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(text(key) + struct.pack("<I", kind) + value for key, (kind, value) in keys.items()) + listed
    with open(target, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


def renamed(source, target, names):
    """Some of a step's tensors, under other names."""
    with open(source, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    made, bytes_ = {}, b""
    for old, new in names.items():
        one = header[old]
        part = data[slice(*one["data_offsets"])]
        made[new] = {"dtype": one["dtype"], "shape": one["shape"], "data_offsets": [len(bytes_), len(bytes_) + len(part)]}
        bytes_ += part
    text = json.dumps(made).encode()
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes_)


def diagnose(dump, *more):
    run = subprocess.run([NANSCOPE, "diagnose", dump, "--format", "json", *more], stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, timeout=120, check=False)
    return run.returncode, json.loads(run.stdout) if run.stdout else {}, run.stderr


def answer(name, *more):
    run = golden(name, "--json", *more)
    return run.returncode, json.loads(run.stdout)


class Verdicts(unittest.TestCase):
    def test_golden_dumps(self):
        names = sorted(os.listdir(GOLDEN))
        self.assertGreaterEqual(len(names), 8)
        for name in names:
            with self.subTest(name):
                expected = expected_of(name)
                code, said = answer(name)
                # Of a mixture of experts the choice of experts is not recomputed.
                self.assertGreater(said["coverage"], 0.94)
                self.assertEqual(code, 1 if not expected["healthy"] else 0 if said["coverage"] >= 0.95 else 3)
                self.assertGreater(said["checked"], 59 if name.startswith("quantized-") else 80)
                why_not = "inputs of products are cast" if casts_inputs(name) else ""
                self.assertEqual(said["free_run"]["why_not"][:len(why_not) or None], why_not)
                if expected["healthy"]:
                    self.assertEqual((said["off"], said["first"]), (0, None))
                    self.assertIsNone(said["free_run"]["leaves_at"])
                    continue
                first = said["first"]
                self.assertIn(first["op"], expected["ops"])
                explained = [one["alternative"] for one in first["explanations"]]
                self.assertEqual(first["certainty"], "shown" if expected["alternatives"] else "none")
                self.assertTrue(explained[:1] == [] == expected["alternatives"] or explained[0] in expected["alternatives"])
                if expected["layer"] is not None:
                    self.assertEqual(first["layer"], expected["layer"])

    def test_what_is_not_known_accuses_nobody(self):
        """Logits without layers, and a module of an unknown name that is taken for a function of its input."""
        name = "healthy-phi3-f16"
        step = os.path.join(GOLDEN, name, "dump", "step_00000", "tensors.safetensors")
        with tempfile.TemporaryDirectory() as folder:
            renamed(step, os.path.join(folder, "some.safetensors"),
                    {"model.embed_tokens.output": "hidden_states_0", "lm_head.output": "logits",
                     "model.layers.0.input_layernorm.output": "extra.input",
                     "model.layers.0.post_attention_layernorm.output": "extra.output"})
            run = verify(folder, model_of(name), "--json")
            self.assertEqual(json.loads(run.stdout)["off"], 0, run.stdout)
            self.assertIn(run.returncode, (0, 3))

    def test_queries_and_keys_in_the_order_of_llama_cpp_accuse_nobody(self):
        name = "healthy-mixtral-bf16"
        step = os.path.join(GOLDEN, name, "dump", "step_00000", "tensors.safetensors")
        spoilt = "model.layers.1.self_attn.k_proj.output"
        for wrong in (None, spoilt):
            with self.subTest(wrong), tempfile.TemporaryDirectory() as folder:
                in_pairs(step, os.path.join(folder, "dump", "step_00000", "tensors.safetensors"), wrong)
                said = json.loads(verify(os.path.join(folder, "dump"), model_of(name), "--json").stdout)
                in_order = [one["tensor"] for one in said["not_checked"] if "as llama.cpp orders them" in one["reason"]]
                self.assertEqual(len(in_order), 4 if wrong is None else 3, said["not_checked"])
                self.assertEqual([one["tensor"] for one in said["outputs"] if one["off"]],
                                 [] if wrong is None else ["step_00000/" + spoilt])

    def test_a_gguf_file_is_a_model(self):
        name = "healthy-phi3-f16"
        wanted = answer(name)[1]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            gguf_of(model_of(name), path)
            for model in (path, folder):
                said = json.loads(verify(os.path.join(GOLDEN, name, "dump"), model, "--json").stdout)
                for key in ("verdict", "off", "checked", "elements", "explained", "coverage"):
                    self.assertEqual(said[key], wanted[key], key)
                self.assertIsNone(said["free_run"]["leaves_at"])
                self.assertEqual(said["free_run"]["why_not"], "")

    def test_a_fault_shows_in_the_free_run_from_its_layer_on(self):
        said = answer("fault-experts-swapped")[1]["free_run"]
        self.assertEqual(said["leaves_at"], 1)
        errors = {one["layer"]: one["error"] for one in said["layers"]}
        self.assertLess(errors[0], 1e-5)
        self.assertGreater(errors[1], 1e-2)
        self.assertEqual(len(said["prompt"]), 12)

    def test_what_was_not_checked_where_the_free_run_leaves_is_named(self):
        """Swapped experts, of which the routing and the rows were not dumped."""
        with tempfile.TemporaryDirectory() as folder:
            for step in ("step_00000", "step_00001"):
                tensors = read_tensors(os.path.join(GOLDEN, "fault-experts-swapped", "dump", step, "tensors.safetensors"))
                write_tensors({name: one for name, one in tensors.items() if not re.search(r"mlp\.(gate|experts)\.", name)},
                              os.path.join(folder, step, "tensors.safetensors"))
            model = model_of("fault-experts-swapped")
            done = verify(folder, model, "--json", "--min-coverage", "0.5")
            said = json.loads(done.stdout)
            self.assertEqual((done.returncode, said["off"], said["verdict"]), (3, 0, "incomplete"))
            self.assertIn("the free run leaves the model in layer 1, in 13 of 13 rows", said["open"])
            self.assertIn("step_00000/model.layers.1.mlp.output", said["open_at"])
            self.assertFalse([name for name in said["open_at"] if "layers.1." not in name])
            brief = verify(folder, model, "--brief", "--min-coverage", "0.5")
            self.assertEqual(brief.returncode, 3)
            self.assertIn("Place     not checked there: ", brief.stdout)

    def test_a_cast_that_rounds_towards_zero_is_named(self):
        """The KV cache of vLLM 0.32 on a CPU; attention reads the codes that were written, so it is not off."""
        code, said = answer("fault-cache-rounds-towards-zero")
        self.assertEqual((code, said["first"]["explanations"][0]["text"]), (1, "the cast rounds towards zero"))
        self.assertEqual({one["kind"] for one in said["outputs"] if one["off"]}, {"kv_store"})

    def test_a_weight_in_memory_is_told_with_its_place(self):
        first = answer("fault-weight-in-memory")[1]["first"]
        self.assertEqual((first["kind"], first["elements"] - first["explained"]), ("weight", 1))
        self.assertEqual((first["worst"]["row"], first["worst"]["channel"]), (3, 5))
        self.assertAlmostEqual(first["worst"]["value"] / first["worst"]["expected"], -64)

    def test_a_fixed_scale_of_an_input_is_compared_with_the_checkpoints(self):
        name = "quantized-ct-fp8-static"
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(model_of(name), model)
            path = os.path.join(model, "model.safetensors")
            with open(path, "rb") as file:
                content = bytearray(file.read())
            size, = struct.unpack("<Q", content[:8])
            at = json.loads(content[8:8 + size])["model.layers.0.mlp.down_proj.input_scale"]["data_offsets"][0] + 8 + size
            content[at] ^= 0x40
            with open(path, "wb") as file:
                file.write(content)
            run = verify(os.path.join(GOLDEN, name, "dump"), model, "--json")
        first = json.loads(run.stdout)["first"]
        self.assertEqual((run.returncode, first["kind"], first["op"]), (1, "weight", "down_proj"))
        self.assertIn("down_proj.input_scale", first["tensor"])

    def test_least_coverage(self):
        code, said = answer("healthy-mixtral-bf16", "--min-coverage", "1")
        self.assertEqual((code, said["verdict"]), (3, "incomplete"))
        self.assertIn("--min-coverage", said["open"])
        code, said = answer("healthy-mixtral-bf16", "--min-coverage", "0.9")
        self.assertEqual((code, said["verdict"], said["open"]), (0, "clean", ""))

    def test_a_weight_of_the_checkpoint_that_is_nan_comes_first(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(model_of("healthy-phi3-f16"), model)
            path = os.path.join(model, "model.safetensors")
            with open(path, "r+b") as file:
                size, = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(size))
                name = "model.layers.1.mlp.down_proj.weight"
                width = {"F32": 4, "F16": 2, "BF16": 2}[header[name]["dtype"]]
                file.seek(8 + size + header[name]["data_offsets"][0])
                file.write(b"\xff" * width)  # a NaN in each of these formats
            run = verify(os.path.join(GOLDEN, "healthy-phi3-f16", "dump"), model, "--json", "--no-free-run")
            said = json.loads(run.stdout)
            self.assertEqual(run.returncode, 1)
            self.assertEqual((said["first"]["kind"], said["first"]["tensor"]), ("weight", "checkpoint/" + name))

    def test_text(self):
        text = golden("fault-softcap-left-out", "--brief").stdout
        self.assertEqual([line.split()[0] for line in text.splitlines() if not line.startswith(" ")],
                         ["Verdict", "First", "Because", "Also", "Rests"])
        self.assertIn("shown: the cap of the scores left out", " ".join(text.split()))
        self.assertIn("Free run", golden("fault-softcap-left-out").stdout)

    def test_nan_where_the_model_has_a_number(self):
        with tempfile.TemporaryDirectory() as folder:
            dump = os.path.join(folder, "dump")
            shutil.copytree(os.path.join(GOLDEN, "healthy-gemma2-f32", "dump"), dump)
            with open(os.path.join(dump, "step_00000", "tensors.safetensors"), "r+b") as file:
                size, = struct.unpack("<Q", file.read(8))
                at = json.loads(file.read(size))["model.layers.1.mlp.up_proj.output"]["data_offsets"][0]
                file.seek(8 + size + at + 4 * (48 * 7 + 3))
                file.write(struct.pack("<f", float("nan")))
            run = verify(dump, model_of("healthy-gemma2-f32"), "--json")
        first = json.loads(run.stdout)["first"]
        self.assertEqual((run.returncode, first["tensor"], first["rows_not_finite"]),
                         (1, "step_00000/model.layers.1.mlp.up_proj.output", 1))

    def test_rows_that_pad_a_step_accuse_nobody(self):
        name = "served-by-vllm-in-chunks"
        with tempfile.TemporaryDirectory() as folder:
            dump = os.path.join(folder, "dump")
            shutil.copytree(os.path.join(GOLDEN, name, "dump"), dump)
            step = os.path.join(dump, "rank0", "step_00004")
            shutil.rmtree(step)
            padded(os.path.join(GOLDEN, name, "dump", "rank0", "step_00004", "tensors.safetensors"),
                   os.path.join(step, "tensors.safetensors"))
            run = verify(dump, model_of(name), "--json")
        self.assertEqual((run.returncode, json.loads(run.stdout)["off"]), (0, 0))

    def test_the_sum_of_a_mixture_with_the_expert_that_every_token_has(self):
        """GLM-4.5's blocks, and what is served instead of their sums."""
        name = "fault-routed-scale-left-out"
        with open(os.path.join(model_of(name), "config.json"), encoding="utf-8") as file:
            factor = json.load(file)["routed_scaling_factor"]
        for shared, said in ((1, None), (0, "the shared expert left out"), (2, "the shared expert added twice"),
                             (1 / factor, f"the shared expert divided by the model's factor of {factor:g}")):
            with self.subTest(said), tempfile.TemporaryDirectory() as folder:
                tensors = read_tensors(os.path.join(GOLDEN, name, "dump", "step_00000", "tensors.safetensors"))
                at = "model.layers.1.mlp."
                sums = [a + shared * b for a, b in zip(floats(tensors, at + "experts.output"), floats(tensors, at + "shared_experts.output"))]
                dtype, shape, _ = tensors[at + "output"]
                tensors[at + "output"] = (dtype, shape, struct.pack(f"<{len(sums)}f", *sums))
                write_tensors(tensors, os.path.join(folder, "dump", "step_00000", "tensors.safetensors"))
                run = verify(os.path.join(folder, "dump"), model_of(name), "--json", "--no-free-run", "--ops", "shared_add")
                found = json.loads(run.stdout)
                self.assertEqual(found["checked"], 1)
                self.assertEqual(found["off"], 0 if said is None else 1)
                if said is not None:
                    self.assertEqual((found["first"]["certainty"], found["first"]["explanations"][0]["text"]), ("shown", said))

    def test_an_adapter_that_was_merged_explains_what_was_stale(self):
        adapter = os.path.join(GOLDEN, "fault-stale-adapter", "adapter")
        code, said = answer("fault-stale-adapter", "--adapter", adapter)
        self.assertEqual((code, said["off"]), (0, 0))

    def test_an_adapter_of_another_scale_is_named_with_its_factor(self):
        with tempfile.TemporaryDirectory() as folder:
            adapter = os.path.join(folder, "adapter")
            shutil.copytree(os.path.join(GOLDEN, "fault-stale-adapter", "adapter"), adapter)
            config = os.path.join(adapter, "adapter_config.json")
            with open(config, encoding="utf-8") as file:
                said = json.load(file)
            said["lora_alpha"] *= 4
            with open(config, "w", encoding="utf-8") as file:
                json.dump(said, file)
            code, found = answer("fault-stale-adapter", "--adapter", adapter)
        explained = found["first"]["explanations"][0]
        self.assertEqual((code, explained["alternative"]), (1, "adapter-scale"))
        self.assertIn("the adapter times 0.25 ", explained["text"])

    def test_projections_that_the_server_fused(self):
        source = os.path.join(GOLDEN, "fault-stale-adapter")
        with tempfile.TemporaryDirectory() as folder:
            for step in sorted(os.listdir(os.path.join(source, "dump"))):
                fused(os.path.join(source, "dump", step, "tensors.safetensors"),
                      os.path.join(folder, "dump", step, "tensors.safetensors"))
            dump = os.path.join(folder, "dump")
            said = json.loads(verify(dump, model_of("fault-stale-adapter"), "--json").stdout)
            healthy = verify(dump, model_of("fault-stale-adapter"), "--json", "--adapter", os.path.join(source, "adapter"))
        self.assertEqual((said["first"]["op"], said["first"]["layer"]), ("qkv_proj", 0))
        self.assertEqual(said["first"]["explanations"][0]["alternative"], "low-rank")
        self.assertEqual(healthy.returncode, 0)
        checked = {one["op"] for one in json.loads(healthy.stdout)["outputs"]}
        self.assertLess({"qkv_proj", "gate_up_proj", "softmax", "down_proj"}, checked)

    def test_a_rank_has_a_part_of_the_heads(self):
        source = os.path.join(GOLDEN, "healthy-gemma2-f32")
        with tempfile.TemporaryDirectory() as folder:
            for step in sorted(os.listdir(os.path.join(source, "dump"))):
                of_first_rank(os.path.join(source, "dump", step, "tensors.safetensors"),
                              os.path.join(folder, "dump", step, "tensors.safetensors"))
            said = json.loads(verify(os.path.join(folder, "dump"), model_of("healthy-gemma2-f32"), "--json").stdout)
        self.assertEqual([one["tensor"] for one in said["outputs"] if one["off"]], [])
        self.assertIn("attention", {one["op"] for one in said["outputs"]})

    def test_experts_that_the_logits_choose(self):
        # What a server dumps that routes inside of its kernel: the logits, and what comes out.
        said = {}
        with tempfile.TemporaryDirectory() as folder:
            for name in ("healthy-mixtral-bf16", "fault-experts-swapped"):
                for step in sorted(os.listdir(os.path.join(GOLDEN, name, "dump"))):
                    tensors = read_tensors(os.path.join(GOLDEN, name, "dump", step, "tensors.safetensors"))
                    chosen = re.compile(r"mlp\.(gate\.output|experts\.input)\.[12]$")
                    write_tensors({key: one for key, one in tensors.items() if not chosen.search(key)},
                                  os.path.join(folder, name, step, "tensors.safetensors"))
                said[name] = json.loads(verify(os.path.join(folder, name), model_of(name), "--json").stdout)
        experts = [one for one in said["healthy-mixtral-bf16"]["outputs"] if one["op"] == "experts"]
        self.assertTrue(experts)
        self.assertEqual([one["tensor"] for one in experts if one["off"]], [])
        first = said["fault-experts-swapped"]["first"]
        self.assertEqual(first["op"], "experts")
        self.assertEqual(first["explanations"][0]["alternative"], "experts")

    def test_ids_of_a_text(self):
        # A tokenizer of one token a byte, in GPT-2's alphabet: what is not printed is shifted beyond 255.
        printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printed]
        letters = {byte: chr(byte) for byte in printed} | {byte: chr(256 + i) for i, byte in enumerate(others)}
        order = [*range(33, 127), 32, 10]
        order += [byte for byte in range(256) if byte not in order]
        vocabulary = {letters[byte]: i for i, byte in enumerate(order)}
        tokenizer = {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": [], "normalizer": None,
                     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                     "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}}
        dump = os.path.join(GOLDEN, "fault-stale-adapter", "dump")
        with open(os.path.join(dump, "step_00000", "tensors.safetensors"), "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            begin, end = json.loads(file.read(size))["input_ids"]["data_offsets"]
            file.seek(8 + size + begin)
            ids = struct.unpack(f"<{(end - begin) // 8}q", file.read(end - begin))
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(model_of("fault-stale-adapter"), model)
            with open(os.path.join(model, "tokenizer.json"), "w", encoding="utf-8") as file:
                json.dump(tokenizer, file)
            text = "".join(chr(order[i]) for i in ids)
            adapter = ("--adapter", os.path.join(GOLDEN, "fault-stale-adapter", "adapter"), "--json")
            for said, notes in ((text, 0), (text[1:], 0), (text[:4] + "!" + text[5:], 1)):
                run = verify(dump, model, *adapter, "--prompt=" + said)
                self.assertEqual((run.returncode, len(json.loads(run.stdout)["notes"])), (notes, notes))
            self.assertIn("position 4", run.stdout)

    def test_selection(self):
        said = answer("fault-softcap-left-out", "--layers", "1", "--ops", "softmax,q_proj")[1]
        self.assertEqual({one["op"] for one in said["outputs"]}, {"softmax", "q_proj"})
        self.assertEqual({one["layer"] for one in said["outputs"]}, {1})


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_junit_has_a_case_an_output(self):
        report = self.path("verify.xml")
        self.assertEqual(golden("fault-softcap-left-out", "--junit", report).returncode, 1)
        suite = xml.etree.ElementTree.parse(report).getroot()[0]
        said = answer("fault-softcap-left-out")[1]
        self.assertEqual((int(suite.get("tests")), int(suite.get("failures"))), (said["checked"], said["off"]))
        again = golden("fault-softcap-left-out", "--junit", report)
        self.assertEqual((again.returncode, again.stdout), (2, ""))
        self.assertIn("--force", again.stderr)
        self.assertEqual(golden("fault-softcap-left-out", "--junit", report, "--force").returncode, 1)

    def test_resume_believes_no_file_that_changed(self):
        dump = self.path("dump")
        shutil.copytree(os.path.join(GOLDEN, "healthy-gemma2-f32", "dump"), dump)
        state, file = self.path("state.jsonl"), os.path.join(dump, "step_00000", "tensors.safetensors")
        model = model_of("healthy-gemma2-f32")
        self.assertEqual(verify(dump, model, "--resume", state, "--no-free-run").returncode, 0)
        times = os.stat(file)
        with open(file, "r+b") as opened:
            opened.seek(-4, os.SEEK_END)
            opened.write(struct.pack("<f", 3.0))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        stale = verify(dump, model, "--resume", state, "--no-free-run")
        self.assertEqual(stale.returncode, 2)
        self.assertIn("is the state of another check", stale.stderr)

    def test_resume_goes_on_and_says_the_same(self):
        state = self.path("state.jsonl")
        whole = answer("fault-softcap-left-out")[1]
        self.assertEqual(answer("fault-softcap-left-out", "--resume", state)[1], whole)
        with open(state, encoding="utf-8") as file:
            lines = file.readlines()
        # A run that was killed in the middle of a line.
        with open(state, "w", encoding="utf-8") as file:
            file.writelines(lines[:40] + [lines[40][:30]])
        self.assertEqual(answer("fault-softcap-left-out", "--resume", state)[1], whole)
        # What is known is not done again: a figure that was changed is told as it stands there.
        with open(state, encoding="utf-8") as file:
            text = file.read()
        with open(state, "w", encoding="utf-8") as file:
            file.write(text.replace('"explained":384', '"explained":383', 1))
        self.assertNotEqual(answer("fault-softcap-left-out", "--resume", state)[1], whole)
        # A head that is no text, and a state that cannot be written.
        for head in ('{"nanscope.verify": 7}\n', "7\n"):
            with open(self.path("head.jsonl"), "w", encoding="utf-8") as file:
                file.write(head)
            refused = golden("fault-softcap-left-out", "--resume", self.path("head.jsonl"))
            self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1), refused.stderr)
        self.assertEqual(golden("fault-softcap-left-out", "--resume", "/dev/full").returncode, 2)
        open(self.path("empty.jsonl"), "w", encoding="utf-8").close()
        self.assertEqual(answer("fault-softcap-left-out", "--resume", self.path("empty.jsonl"))[1], whole)
        other = golden("healthy-gemma2-f32", "--resume", state)
        self.assertEqual(other.returncode, 2)
        self.assertIn("is the state of another check", other.stderr)


class BadInput(Files):
    """One line on standard error, exit 2, and nothing else."""

    def refused(self, model, part, dump=os.path.join(GOLDEN, "fault-stale-adapter", "dump"), *more):
        run = verify(dump, model, *more)
        self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
        self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
        self.assertIn(part, run.stderr)

    def checkpoint(self, name="llama2"):
        model = self.path("model")
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(os.path.join(CHECKPOINTS, name), model)
        os.remove(os.path.join(model, "expected.safetensors"))
        return model

    def with_config(self, **changes):
        model = self.checkpoint()
        path = os.path.join(model, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config | changes, file)
        return model

    def indexed(self, weight_map):
        model = self.checkpoint()
        os.rename(os.path.join(model, "model.safetensors"), os.path.join(model, "a.safetensors"))
        with open(os.path.join(model, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
            json.dump({"weight_map": weight_map}, file)
        return model

    def names(self):
        with open(os.path.join(CHECKPOINTS, "llama2", "model.safetensors"), "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            return [name for name in json.loads(file.read(size)) if name != "__metadata__"]

    def test_no_model(self):
        self.refused(self.path("nowhere"), "nowhere")
        self.refused(os.path.join(GOLDEN, "fault-stale-adapter", "dump"), "config.json")

    def test_no_dump(self):
        model = os.path.join(CHECKPOINTS, "llama2")
        self.refused(model, "nowhere", self.path("nowhere"))
        self.refused(model, "holds no tensors", self.folder)

    def test_shards(self):
        names = self.names()
        self.refused(self.indexed({name: "a.safetensors" if i else "gone.safetensors" for i, name in enumerate(names)}),
                     "gone.safetensors")
        self.refused(self.indexed({name: "../../a.safetensors" for name in names}), "no file of this folder")
        self.refused(self.indexed({name: "model.safetensors.index.json" for name in names}), "model.safetensors.index.json")
        self.refused(self.indexed([]), "weight_map")
        self.refused(self.indexed({"other": "a.safetensors"}), "other")

    def test_truncated(self):
        model = self.checkpoint()
        file = os.path.join(model, "model.safetensors")
        os.truncate(file, os.path.getsize(file) - 100)
        self.refused(model, "model.safetensors")
        os.truncate(file, 5)
        self.refused(model, "model.safetensors")

    def test_shapes_that_do_not_fit(self):
        self.refused(self.with_config(intermediate_size=47), "mlp")
        self.refused(self.with_config(vocab_size=95), "embed_tokens")
        self.refused(self.with_config(num_hidden_layers=3), "layers.2")
        self.refused(self.with_config(num_hidden_layers=1), "layers.1")

    def test_config(self):
        self.refused(self.with_config(rms_norm_eps=float("nan")), "config.json")
        self.refused(self.with_config(num_hidden_layers=10**6), "num_hidden_layers")
        self.refused(self.with_config(num_hidden_layers=-1), "num_hidden_layers")
        self.refused(self.with_config(quantization_config={"quant_method": "unheard-of"}), "quantization_config")
        self.refused(self.with_config(model_type="unheard-of"), "unheard-of")

    def test_adapter(self):
        model = os.path.join(CHECKPOINTS, "llama2")
        dump = os.path.join(GOLDEN, "fault-stale-adapter", "dump")
        self.refused(model, "adapter_config.json", dump, "--adapter", self.folder)
        adapter = self.path("adapter")
        shutil.copytree(os.path.join(GOLDEN, "fault-stale-adapter", "adapter"), adapter)
        other = os.path.join(CHECKPOINTS, "qwen2")
        self.refused(os.path.join(CHECKPOINTS, "gpt2"), "does not have", dump, "--adapter", adapter)
        with open(os.path.join(adapter, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump({"peft_type": "IA3"}, file)
        self.refused(other, "peft_type", dump, "--adapter", adapter)

    def test_options(self):
        model = os.path.join(CHECKPOINTS, "llama2")
        dump = os.path.join(GOLDEN, "fault-stale-adapter", "dump")
        self.refused(model, "--brief", dump, "--brief", "--json")
        self.refused(model, "no/such", dump, "--junit", self.path("no/such/file.xml"))
        self.refused(model, "no/such", dump, "--resume", self.path("no/such/state"))


class DiagnoseWithItsModel(unittest.TestCase):
    def test_golden_dumps(self):
        for name in sorted(os.listdir(GOLDEN)):
            with self.subTest(name):
                expected = expected_of(name)
                dump = os.path.join(GOLDEN, name, "dump")
                code, said, _ = diagnose(dump, "--model", model_of(name))
                coverage = said["coverage"]["judged"] / said["coverage"]["outputs"]
                # vLLM's scales of the cache and its tables of angles are no outputs that can be judged.
                self.assertGreater(coverage, 0.9 if expected["attention"] == "vllm" else 0.94)
                self.assertGreater(coverage, diagnose(dump)[1]["coverage"]["judged"] / said["coverage"]["outputs"])
                if expected["healthy"]:
                    self.assertEqual((code, said["faults"]), (0, []))
                    self.assertEqual(said["verdict"], "clean" if coverage == 1 else "no-fault-found")
                    continue
                # The only down_proj of a model of one layer: no other shows how that product casts its input.
                if "diagnose" in expected:
                    self.assertEqual((code, said["verdict"]), (0, expected["diagnose"]))
                    continue
                self.assertEqual((code, said["root_cause"]["class"], said["root_cause"]["certainty"]), (1, "wrong-result", "proved"))
                if expected["layer"] is not None:
                    self.assertEqual(said["root_cause"]["layer"], expected["layer"])

    def test_a_family_that_is_not_known_gives_its_weights_alone(self):
        name = "healthy-phi3-f16"
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(model_of(name), model)
            with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            config["model_type"] = "strange"
            with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file)
            code, said, _ = diagnose(os.path.join(GOLDEN, name, "dump"), "--model", model)
        self.assertEqual(code, 0)
        self.assertTrue([note for note in said["notes"] if "how its ops are computed is inferred" in note["text"]])
        self.assertGreater(said["coverage"]["judged"], 100)

    def test_what_is_no_model_is_refused(self):
        dump = os.path.join(GOLDEN, "healthy-phi3-f16", "dump")
        for folder in ("/nowhere", dump):
            run = subprocess.run([NANSCOPE, "diagnose", dump, "--model", folder], capture_output=True, text=True, check=False)
            self.assertEqual((run.returncode, run.stdout, run.stderr.count("\n")), (2, "", 1), run.stderr)
            self.assertIn(folder, run.stderr)

    def test_a_recording_has_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            made = os.path.join(folder, "run.nanscope")
            subprocess.run([NANSCOPE, "run", "kv-scale-lock", "-o", made], capture_output=True, check=True)
            run = subprocess.run([NANSCOPE, "diagnose", made, "--model", model_of("healthy-phi3-f16")], capture_output=True,
                                 text=True, check=False)
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("--model is for dumps", run.stderr)


if __name__ == "__main__":
    NANSCOPE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
