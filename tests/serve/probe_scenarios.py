"""Serves every scenario that answers requests, and its healthy twin; probes both; prints a table; fails below the
limits of MEASURES.

usage: probe_scenarios.py NANSCOPE SCENARIOS [NAME...]

A row of TWINS: the settings that remove the fault, and the mechanisms that name it. Scenarios whose fault is a change
of the weights in the middle of a run have no twin. A scenario counts as visible if the probe of the fault with the twin
as its reference finds a broken invariant, or the probe without reference does. The weights of the table of mechanisms
were chosen on these scenarios, so the shares of mechanisms say that the table holds together, not how it does on
servers that it never saw.
"""
import json
import pathlib
import re
import subprocess
import sys

from server import Server

MEASURES = {"detected": 0.6, "first": 0.6, "in three": 0.85}
FORWARD = ["nan-in-forward"]
POISON = ["cache-poison"]
LEAK = ["future-leakage"]
FOREIGN = ["foreign-cache-read"]
MISAPPLIED = ["scale-misapplied"]
DELAYED = ["delayed-scale-stale"]
LOCKED = ["kv-scale-locked"]
STEP = ["scale-of-a-step"]
WEIGHTS = ["weights"]
TWINS = {
    "additive-mask-nan": (["kv.memory=zeroed"], POISON),
    "block-mask-leaks": (["attention.causal=exact"], LEAK),
    "calibrated-on-stale-state": (["kv.format=bf16"], FOREIGN),
    "cast-launders-nan": (["norm.variance=two_pass"], FORWARD),
    "delayed-scale-stale": (["kv.policy=per_token"], DELAYED),
    "empty-softmax-row": (["engine.pad=none"], FORWARD),
    "fp8-queries-keys-unseen-weights": (["scores.qk_format=f32"], DELAYED),
    "fp8-scales-of-other-weights": (["scores.format=f32"], MISAPPLIED),
    "fp8-scores-new-data": (["scores.format=f32"], DELAYED),
    "fp8-scores-rate-spike": (None, DELAYED),
    "fp8-scores-resumed": (None, DELAYED),
    "fp8-scores-unseen-weights": (["scores.format=f32"], DELAYED),
    "fp8-scores-weight-spike": (None, DELAYED),
    "fp8-scores-weights-loaded": (None, DELAYED),
    "fp8-two-flavours": (["kv.read_format=e4m3"], FORWARD),
    "future-leakage": (["attention.causal=exact"], LEAK),
    "grammar-no-legal-token": (["engine.grammar="], ["token-choice"]),
    "half-range-block-sum": (["activation.partial_sums=f32"], FORWARD),
    "kv-asymmetric-no-epsilon": (["kv.scheme=bf16"], ["overflow-of-wide-content"]),
    "kv-percentile-clips-spikes": (["kv.scheme=bf16"], STEP + MISAPPLIED),
    "kv-scale-lock": (["kv.format=bf16"], LOCKED),
    "leaky-mxfp4-keys": (["attention.diagonal=exact"], LEAK),
    "leaky-mxfp4-values": (["attention.diagonal=exact"], LEAK),
    "locked-scale-warmup": (["kv.format=bf16"], LOCKED),
    "masked-v-poison": (["kv.memory=zeroed"], POISON),
    "mlp-overflow-f16": (["activation.format=f32"], FORWARD),
    "neighbour-sets-scale": (["kv.format=bf16"], STEP),
    "nonsaturating-cast": (["kv.format=bf16"], LOCKED + ["overflow-of-wide-content"]),
    "null-block-poison": (["engine.dummy_batch=none"], POISON),
    "onepass-variance": (["norm.variance=two_pass"], FORWARD),
    "outlier-squash": (["kv.format=bf16"], STEP),
    "padding-poisons-scale": (["engine.pad_rows=zero", "kv.format=bf16"], STEP),
    "padding-rows-write-slot-0": (["engine.dummy_batch=none"], POISON + ["nan-in-decode"]),
    "padding-sets-block-scale": (["engine.pad=none"], LEAK),
    "preempted-blocks-stale": (["engine.preempt=recompute"], FOREIGN),
    "prefix-poison": (["kv.memory=zeroed"], POISON),
    "rank-scales-differ": (["kv.rank_scales=own"], MISAPPLIED),
    "rank-stuck-bit": (["allreduce.stuck_rank=-1"], ["nan-in-decode"]),
    "recycled-block-bits": (["kv.tail=skip"], POISON),
    "residual-overflow-f16": (["activation.format=f32"], FORWARD),
    "rope-served-too-short": (["rope.scaling=dynamic"], FORWARD),
    "router-cancellation": (["moe.weights=gate"], WEIGHTS),
    "scale-byte-127": (["activation.scale_overflow=saturate"], FORWARD),
    "scale-inverted": (["kv.read_scale=once"], MISAPPLIED),
    "scale-left-out": (["kv.read_scale=once"], MISAPPLIED),
    "scale-packing-mantissa": (["activation.scale_packing=rounded"], FORWARD + ["nan-in-decode"]),
    "scale-padding-uninit": (["activation.scale_memory=zeroed"], FORWARD),
    "scale-twice": (["kv.read_scale=once"], MISAPPLIED),
    "sentinel-scale": (["kv.scale_k=0.05", "kv.scale_v=0.05", "kv.read_scale=once"], FORWARD),
    "sleep-wake-scales": (["kv.wake=restored"], MISAPPLIED),
    "softmax-launders-nan": (["norm.variance=two_pass"], FORWARD),
    "state-index-minus-one": (["kv.state_index=own"], FOREIGN),
    "state-not-reset": (["kv.resume_state=own"], FOREIGN),
    "state-unit-stride": (["kv.state_index=own"], FOREIGN),
    "static-scale-too-small": (["kv.format=bf16"], LOCKED + MISAPPLIED),
    "unit-scale-nonsaturating": (["kv.format=bf16"], FORWARD),
    "weight-bit-flip": (None, WEIGHTS),
    "weight-scale-lost": (None, WEIGHTS),
    "window-scale-stale": (["kv.format=bf16"], LOCKED),
    "zero-scale": (["kv.warm_up=false"], FORWARD),
}
# These expect a clean verdict, so nothing may be called broken.
HEALTHY = ["benign-nan-constant", "fixed-mxfp4-values", "legitimate-token-0", "rmsnorm-locked-scale", "two-pass-variance"]


def serve(nanscope, name, settings=()):
    return Server(nanscope, name, *[word for setting in settings for word in ("--set", setting)])


def probe(nanscope, server, *more):
    ran = subprocess.run([nanscope, "probe", server.url, "--format", "json", "--rate", "10000", *more],
                         capture_output=True, text=True, check=False, timeout=600)
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"exit code {ran.returncode}: {ran.stderr}")
    return json.loads(ran.stdout)


def broken(found):
    return [one["name"] for one in found["invariants"] if one["state"] == "broken"]


def main():
    nanscope, scenarios, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    everything = {path.stem for path in scenarios.glob("*.toml")
                  if not re.search(r"^\[train", path.read_text(encoding="utf-8"), re.M)}
    missing = everything - TWINS.keys() - set(HEALTHY)
    if missing and not names:
        print(f"no row for {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    rows = []
    accused = []
    for name in names or sorted(everything):
        settings, right = TWINS.get(name, ([], []))
        found = twin_broken = with_twin = None
        with serve(nanscope, name) as server:
            found = probe(nanscope, server)
        if name in HEALTHY:
            if broken(found):
                accused.append(name)
            print(f"{name:32} healthy  {', '.join(broken(found)) or 'nothing broken'}", flush=True)
            continue
        if settings is not None:
            with serve(nanscope, name, settings) as twin:
                twin_broken = broken(probe(nanscope, twin))
            if twin_broken:
                accused.append(f"the twin of {name} ({', '.join(twin_broken)})")
            with serve(nanscope, name, settings) as twin, serve(nanscope, name) as server:
                with_twin = probe(nanscope, server, "--reference", twin.url)
        against = [one for one in broken(with_twin or found) if one.startswith("reference")]
        ranked = [one["name"] for one in found["mechanisms"]]
        place = next((i for i, one in enumerate(ranked) if one in right), None)
        rows.append((bool(broken(found)), bool(with_twin and broken(with_twin)), place))
        print(f"{name:32} {', '.join(broken(found)) or '-':44} {ranked[0] if ranked else '-':24} "
              f"{'-' if place is None else place + 1}  reference: "
              f"{'no twin' if with_twin is None else ', '.join(against) or 'held'}  twin: "
              f"{'-' if twin_broken is None else ', '.join(twin_broken) or 'healthy'}", flush=True)
    seen = [row for row in rows if row[0] or row[1]]
    detected = [row for row in rows if row[0]]
    shares = {"detected": len(detected) / max(1, len(seen)),
              "first": sum(row[2] == 0 for row in detected) / max(1, len(detected)),
              "in three": sum(row[2] is not None and row[2] < 3 for row in detected) / max(1, len(detected))}
    print(f"{len(rows)} faults, {len(seen)} visible, {len(detected)} detected without a reference; "
          f"the right mechanism first {shares['first']:.0%}, among three {shares['in three']:.0%}")
    print(f"healthy servers that were accused: {', '.join(accused) or 'none'}")
    below = [] if names else [name for name, least in MEASURES.items() if shares[name] < least]
    if below:
        print(f"below the measure: {', '.join(below)}", file=sys.stderr)
    return 1 if accused or below else 0


if __name__ == "__main__":
    sys.exit(main())
