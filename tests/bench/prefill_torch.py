"""A prefill of 128 tokens by the engine and by torch: `bench_model prefill` against transformers in turns, on two threads.

usage: prefill_torch.py BENCH_MODEL FOLDER [float32|bfloat16]    needs torch and transformers (CPU)

FOLDER is what large_checkpoint wrote. torch runs the same model with its weights in f32, or in bf16 as the file has them and
the engine runs it. Each computes the logits of all tokens and fills its cache. The best of all turns counts.
"""

import re
import subprocess
import sys
import time

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(77)

TOKENS = 128
THREADS = 2
ROUNDS = 2
TURNS = 3


def load(folder, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def seconds_of(model, ids):
    begin = time.perf_counter()
    with torch.inference_mode():
        model(input_ids=ids, use_cache=True)
    return time.perf_counter() - begin


def seconds_of_ours(program, folder):
    run = subprocess.run([program, "prefill", folder], capture_output=True, text=True, check=False)
    told = re.search(r"\| *[\d.]+, ([\d.]+) s,", run.stdout)
    if told is None:
        sys.exit(f"{program}: {run.stdout}{run.stderr}")
    return float(told.group(1))


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.strip())
    program, folder = sys.argv[1:3]
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[(sys.argv[3:] or ["float32"])[0]]
    torch.set_num_threads(THREADS)
    ids = torch.tensor([[(37 * i + 5) % 250 for i in range(TOKENS)]])
    ours, theirs = [], []
    model = load(folder, dtype)
    seconds_of(model, ids)  # packs weights
    for _ in range(ROUNDS):
        ours.append(seconds_of_ours(program, folder))
        theirs += [seconds_of(model, ids) for _ in range(TURNS)]
    print(f"prefill of {TOKENS} tokens on {THREADS} threads: ours {min(ours):.2f} s, torch {torch.__version__} in {str(dtype)[6:]} "
          f"{min(theirs):.2f} s, ours / torch {min(ours) / min(theirs):.2f}")


if __name__ == "__main__":
    main()
