"""Decodes with a small transformer in PyTorch, f16 by seed, greedily, from a preallocated KV cache.

tests/gpu/check runs it alone and under `nanscope attach --run`; it knows nothing of nanscope. It prints a digest of all
tokens and of the bits of the last logits, how many of these are not finite, and the mean seconds of a token.

Two runs on one device give the same digest: no operation adds in an order that changes or writes one place twice, and
cuBLAS is given a workspace of fixed size. torch.use_deterministic_algorithms() is left off: it would fill what
torch.empty() returns with NaN, and a fault here must come about as it does in a server.

Faults:
  overflow  one layer has outliers, channels of its gate and up projection that are 512 times as large: their product
            leaves the half range in an MLP, and the down projection adds +Inf to -Inf
  softmax   half way through, a request is taken out of the batch but its row goes on being computed, with a mask that
            is -Inf everywhere
  kv        nobody clears the KV cache, which got memory that held f32 numbers; attention reads the whole cache, so that
            slots are read before they are written, and a weight of 0 does not help against a NaN
"""

import argparse
import hashlib
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when CUDA starts

try:
    import torch
    from torch.nn import functional
except ImportError:
    torch = None

BATCH = 4
HEAD = 64  # elements of one head
PROMPT = 8  # tokens of a request that are given
VOCABULARY = 1024
MLP = 3  # times the width
BLOCK = 64  # slots of the cache come in blocks of so many


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def natural(text):
    number = int(text)
    if not 1 <= number < 2**31:
        raise ValueError
    return number


natural.__name__ = "natural number"  # argparse names it in its message


def options_of(arguments):
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", choices=("none", "overflow", "softmax", "kv"), default="none",
                        help="what is planted (default: none)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where it runs (default: cuda)")
    parser.add_argument("--tokens", type=natural, default=32, metavar="N",
                        help=f"tokens to decode after a prompt of {PROMPT} (default: 32)")
    parser.add_argument("--warm-up", type=natural, default=8, metavar="N",
                        help="of these, how many before time is taken (default: 8)")
    parser.add_argument("--layers", type=natural, default=4, metavar="N", help="layers (default: 4)")
    parser.add_argument("--width", type=natural, default=256, metavar="N",
                        help=f"elements of the residual, a multiple of {HEAD} (default: 256)")
    parser.add_argument("--seed", type=natural, default=1, metavar="N", help="of weights and prompts (default: 1)")
    parser.add_argument("--graph", action="store_true", help="capture a decode step in a CUDA graph and replay it")
    options = parser.parse_args(arguments)
    if options.width % HEAD != 0:
        parser.error(f"argument --width: {options.width} is no multiple of {HEAD}")
    if options.warm_up >= options.tokens:
        parser.error(f"argument --warm-up: {options.warm_up} of {options.tokens} tokens leave none to measure")
    if options.graph and options.device != "cuda":
        parser.error("argument --graph: needs --device cuda")
    if torch is None:
        parser.error("torch is not installed")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: torch finds no CUDA device")
    return options


class Layer:
    def __init__(self, draw, width, outliers):
        narrow = width**-0.5
        self.attention_norm = draw.ones(width)
        self.qkv = draw.normal((3 * width, width), narrow)
        self.out = draw.normal((width, width), narrow)
        self.mlp_norm = draw.ones(width)
        self.gate = draw.normal((MLP * width, width), narrow)
        self.up = draw.normal((MLP * width, width), narrow)
        if outliers:
            self.gate[::32] *= 512
            self.up[::32] *= 512
        self.down = draw.normal((width, MLP * width), (MLP * width) ** -0.5)


class Draw:
    """Makes f16 weights by seed."""

    def __init__(self, seed, device):
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)

    def numbers(self, shape):
        return torch.randn(shape, generator=self.generator, device=self.device)

    def normal(self, shape, deviation):
        return (self.numbers(shape) * deviation).half()

    def ones(self, width):
        return torch.ones(width, dtype=torch.float16, device=self.device)


def used_memory(draw, count):
    """`count` bytes that nobody cleared after they were f32 numbers, as weights are while a checkpoint is loaded."""
    if draw.device == "cpu":
        # malloc does not promise to return what was freed last: here two views share one tensor.
        memory = torch.empty(count, dtype=torch.uint8)
        memory.view(torch.float32).copy_(draw.numbers(count // 4))
        return memory
    loaded = draw.numbers(count // 4)
    address = loaded.data_ptr()
    del loaded
    memory = torch.empty(count, dtype=torch.uint8, device=draw.device)
    if memory.data_ptr() != address:
        sys.exit("torch_decode.py: torch's allocator did not return the memory that was freed last")
    return memory


class Decoder:
    def __init__(self, options):
        draw = Draw(options.seed, options.device)
        width, steps = options.width, PROMPT + options.tokens
        self.embedding = draw.normal((VOCABULARY, width), 1)
        self.positions = draw.normal((steps, width), 1)
        self.layers = [Layer(draw, width, options.fault == "overflow" and i == options.layers // 2)
                       for i in range(options.layers)]
        self.norm = draw.ones(width)
        self.head = draw.normal((VOCABULARY, width), width**-0.5)
        self.prompt = torch.randint(VOCABULARY, (BATCH, PROMPT), generator=draw.generator, device=options.device)
        slots = (steps // BLOCK + 1) * BLOCK  # some are never written
        shape = (options.layers, 2, BATCH, width // HEAD, slots, HEAD)
        count = 2 * torch.Size(shape).numel()
        if options.fault == "kv":
            memory = used_memory(draw, count)
        else:
            memory = torch.empty(count, dtype=torch.uint8, device=options.device).zero_()
        self.cache = memory.view(torch.float16).view(shape)
        # What a step reads, at addresses that a graph may keep.
        self.slots = torch.arange(slots, device=options.device)
        self.ids = torch.zeros(BATCH, dtype=torch.int64, device=options.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=options.device)
        self.active = torch.ones(BATCH, dtype=torch.bool, device=options.device)

    def attention(self, layer, cache, x, hidden):
        qkv = functional.linear(self.normalized(x, layer.attention_norm), layer.qkv)
        q, k, v = qkv.view(BATCH, 3, -1, 1, HEAD).unbind(1)
        cache[0].index_copy_(2, self.position, k)
        cache[1].index_copy_(2, self.position, v)
        scores = (q @ cache[0].transpose(-1, -2)) * HEAD**-0.5
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        return functional.linear((weights @ cache[1]).reshape(x.shape), layer.out)

    def mlp(self, layer, x):
        x = self.normalized(x, layer.mlp_norm)
        product = functional.silu(functional.linear(x, layer.gate)) * functional.linear(x, layer.up)
        return functional.linear(product, layer.down)

    @staticmethod
    def normalized(x, weight):
        return functional.rms_norm(x, weight.shape, weight, 1e-5)

    def step(self):
        """Logits of the next token. Once more with the same ids and position it gives the same and changes nothing."""
        x = self.embedding[self.ids] + self.positions.index_select(0, self.position)
        seen = (self.slots <= self.position) & self.active[:, None]
        hidden = ~seen[:, None, None, :]
        for layer, cache in zip(self.layers, self.cache):
            x = x + self.attention(layer, cache, x, hidden)
            x = x + self.mlp(layer, x)
        return functional.linear(self.normalized(x, self.norm), self.head)


def captured(step):
    """The step as a graph that is replayed. It runs before on a stream of its own, as torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = step()

    def replay():
        graph.replay()
        return logits

    return replay


def decode(options):
    decoder = Decoder(options)
    step = captured(decoder.step) if options.graph else decoder.step
    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    steps = PROMPT + options.tokens
    tokens = []
    chosen = None
    for t in range(steps):
        if t == PROMPT + options.warm_up:
            synchronize()
            start = time.perf_counter()
        if options.fault == "softmax" and t == steps // 2:
            decoder.active[1] = False
        decoder.ids.copy_(decoder.prompt[:, t] if t < PROMPT else chosen)
        decoder.position.fill_(t)
        logits = step()
        chosen = logits.argmax(-1)
        tokens.append(chosen.tolist())
    synchronize()
    # The mean: what a budget leaves out of most tokens and spends on a few, a median would not show.
    seconds = (time.perf_counter() - start) / (options.tokens - options.warm_up)
    return tokens, logits, seconds


def main(arguments):
    options = options_of(arguments)
    with torch.inference_mode():
        tokens, logits, seconds = decode(options)
        bad = int((~torch.isfinite(logits)).sum())
        digest = hashlib.sha256(repr(tokens).encode() + bytes(logits.view(torch.uint8).flatten().tolist()))
    print(f"digest {digest.hexdigest()}")
    print(f"non-finite {bad} of {logits.numel()}")
    print(f"seconds {seconds:.9f}")


if __name__ == "__main__":
    main(sys.argv[1:])
