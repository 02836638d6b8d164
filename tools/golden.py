"""Record what the commands print and the numbers they compute, and compare after a refactoring.

    python tools/golden.py record DIR
    python tools/golden.py compare DIR [--only WORD]

`record` writes a file per case. `compare` runs the cases again and shows how the outputs differ; it exits with 1 if any
does. Times, versions and commits are left out of the comparison.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DESIGNS = (
    "fp32-systolic", "bf16-systolic", "fp8-systolic", "caterpillar-small", "caterpillar-large", "h200", "tpu-v2",
    "dgx-1", "p100",
)  # fmt: skip
FORMATS = (
    "float32", "bfloat16", "float16", "e4m3", "e4m3fn", "e5m2", "int8", "int4", "fixed(4, 4)", "mxfp8_e4m3", "mxfp4",
    "nvfp4", "bfp(mantissa=4, group=4)", "bfp(mantissa=3, group=2, square=true)", "posit(8, 1)", "posit(12, 1)",
    "lns(3, 3)", "table(values=[-2, -1, 0, 1, 3])", "float(exponent=6, mantissa=9)", "mxint8",
    "float(exponent=5, mantissa=2, overflow=saturate)",
)  # fmt: skip
REPRODUCTIONS = (
    "caterpillar", "mlperf", "in-place-transpose", "checkpointing", "memory-of-normalization", "instrument-area",
    "hybrid-table1", "hybrid-table2", "hybrid-table3",
)  # fmt: skip

TRACE = """
import hashlib, json, torch
import presilicon as ps
from dataclasses import replace
from presilicon.designs import load_recipe
from presilicon.formats import matmul, MacUnit, parse, quantize, encode, decode
torch.set_num_threads(1)
def digest(t): return hashlib.sha256(t.detach().contiguous().cpu().numpy().tobytes()).hexdigest()[:16]
out = {}
for recipe in ("fp32", "bf16", "fp16-mixed", "fp8-hybrid", "fp8-chunked", "mxfp8", "int8", "bfp4"):
    name = "digits-cnn" if recipe in ("bf16", "mxfp8") else "digits-mlp"
    w = replace(ps.load_workload(name), max_steps=12, evaluate_every=6)
    t = ps.train(w, load_recipe(recipe).numerics, seed=3)
    out["train " + recipe] = [t.losses, [[e.step, e.value, e.loss] for e in t.evaluations], t.test_value]
x = torch.randn(33, 40, generator=torch.Generator().manual_seed(1)) * torch.logspace(-6, 6, 40)
x[0, :4] = torch.tensor([0.0, -0.0, float("inf"), float("nan")])
for text in FORMATS:
    fmt = parse(text)
    for mode in ("nearest-even", "toward-zero", "stochastic"):
        try:
            out[f"quantize {text} {mode}"] = digest(quantize(x, fmt, rounding=mode))
        except ps.PresiliconError as error:
            out[f"quantize {text} {mode}"] = type(error).__name__
    try:
        codes = encode(x, fmt)
        parts = [codes.elements, codes.scales] if hasattr(codes, "elements") else [codes]
        out[f"codes {text}"] = [digest(p) for p in parts if isinstance(p, torch.Tensor)] + [digest(decode(codes, fmt))]
    except ps.PresiliconError as error:
        out[f"codes {text}"] = type(error).__name__
a = torch.randn(9, 50, generator=torch.Generator().manual_seed(2))
b = torch.randn(50, 7, generator=torch.Generator().manual_seed(3))
half = parse("float16")
for mac in (MacUnit(), MacUnit(accumulate=half, order="sequential"), MacUnit(accumulate=half, order="pairwise"),
            MacUnit(accumulate=parse("bfloat16"), chunk=8)):
    out[f"matmul {mac}"] = digest(matmul(a, b, mac=mac))
print(json.dumps(out, indent=1, sort_keys=True))
"""

OPERATORS = """
import hashlib, json, torch, warnings
import msgspec
import presilicon as ps
from dataclasses import replace
from msgspec.structs import replace as changed
from presilicon.designs import load_recipe, recipe_names
from presilicon.emulation import coverage
from presilicon.workloads import capture_workload, workload_names
warnings.simplefilter("ignore")
torch.set_num_threads(1)
out = {}
for recipe in recipe_names():
    numerics = load_recipe(recipe).numerics
    w = replace(ps.load_workload("digits-cnn"), max_steps=4, evaluate_every=2)
    try:
        t = ps.train(w, changed(numerics, vector="round-steps"), seed=3)
        out["steps " + recipe] = [t.losses, [[e.step, e.value, e.loss] for e in t.evaluations], t.test_value]
    except ps.PresiliconError as error:
        out["steps " + recipe] = type(error).__name__
for name in workload_names():
    graph = capture_workload(ps.load_workload(name))
    out["graph " + name] = hashlib.sha256(msgspec.json.encode(graph)).hexdigest()[:16]
for name in ("digits-cnn", "fashion-vit", "gpt-block", "lstm", "fashion-resnet18", "digits-revnet"):
    w = ps.load_workload(name)
    inputs, targets = (torch.zeros(part.shape, dtype=part.dtype) for part in w.batch(2))
    torch.manual_seed(0)
    for recipe in ("bf16", "fp8-hybrid"):
        for vector in ("round-results", "round-steps"):
            numerics = changed(load_recipe(recipe).numerics, vector=vector)
            try:
                listing = coverage(w.model(), numerics, inputs, targets=targets, loss=w.loss)
                out[f"coverage {name} {recipe} {vector}"] = [
                    [op.layer, op.stage, op.operator, op.formats, op.status, op.calls, op.flops] for op in listing.ops
                ]
            except ps.PresiliconError as error:
                out[f"coverage {name} {recipe} {vector}"] = type(error).__name__
print(json.dumps(out, indent=1, sort_keys=True))
"""


def cases() -> dict[str, list[str]]:
    commands: dict[str, list[str]] = {}
    for what in ("designs", "systems", "workloads", "numerics", "technologies", "formats", "aggregations"):
        commands[f"list-{what}"] = ["list", what, "--json"]
    for design in DESIGNS:
        commands[f"show-{design}"] = ["design", "show", design]
        commands[f"simulate-{design}"] = ["simulate", design, "--workload", "digits-mlp", "--json"]
        if not design.startswith("caterpillar"):
            commands[f"simulate-cnn-{design}"] = [
                "simulate",
                design,
                "--workload",
                "resnet50",
                "--batch",
                "8",
                "--json",
            ]
    bf16 = ["simulate", "bf16-systolic"]
    commands["diff"] = ["design", "diff", "fp32-systolic", "fp8-systolic", "--json"]
    commands["gemm"] = [*bf16, "--gemm", "512x256x128", "--array", "32x32", "--dataflow", "output-stationary", "--json"]
    commands["checkpoint"] = [*bf16, "--workload", "digits-cnn", "--checkpoint", "sqrt", "--json"]
    commands["times"] = [*bf16, "--workload", "digits-mlp", "--times", "examples/digits-mlp-times.csv", "--json"]
    commands["transposer"] = [*bf16, "--workload", "digits-cnn", "--set", "machine.transpose=transposer", "--json"]
    commands["h200-bert"] = [
        "simulate",
        "h200",
        "--workload",
        "bert-base",
        "--batch",
        "4",
        "--numerics",
        "bf16",
        "--json",
    ]
    for text in FORMATS:
        name = re.sub(r"[^a-z0-9]+", "-", text)
        numbers = ["0.1", "-3.3", "70000", "1e-9", "inf", "nan", "0.5", "-1"]
        commands[f"quantize-{name}"] = ["quantize", text, *numbers, "--json"]
    steps = ["--max-steps", "60", "--evaluate-every", "20"]
    train = ["--workload", "digits-mlp", "--seeds", "2", *steps, "--jobs", "1", "--json"]
    commands["evaluate"] = ["evaluate", "fp32-systolic", "bf16-systolic", "fp8-systolic", *train]
    commands["evaluate-numerics"] = ["evaluate", "bf16-systolic", "--numerics", "mxfp8,int8,fp16-mixed", *train]
    commands["evaluate-sensitivity"] = ["evaluate", "fp32-systolic", "fp8-systolic", "--sensitivity", *train]
    commands["evaluate-caterpillar"] = ["evaluate", "caterpillar-small", *train]
    watched = ["evaluate", "examples/watched.toml", "--workload", "digits-cnn"]
    commands["evaluate-watched"] = [*watched, "--seeds", "1", *steps, "--jobs", "1", "--json"]
    step = ["schedule", "v100-3xs10", "--workload"]
    for solver in ("greedy", "heft"):
        commands[f"schedule-{solver}"] = [*step, "digits-cnn", "--solver", solver, "--json"]
    commands["schedule-exact"] = [*step, "digits-mlp", "--solver", "exact", "--json"]
    cap = ["--objective", "throughput", "--power-cap", "230"]
    commands["schedule-cap"] = [*step, "digits-mlp", *cap, "--solver", "heft", "--json"]
    kernel = ["--op", "MatMul", "--shape", "2048x1024x1024", "--config", "2,1,128,64", "--fmax-mhz", "210"]
    commands["kernels"] = ["schedule", "kernels", *kernel, "--json"]
    commands["rtl"] = ["rtl", "instrument", "examples/watched.toml", "--out", "{dir}/rtl"]
    commands["instrument-list"] = ["instrument", "list", "--json"]
    for name in REPRODUCTIONS:
        commands[f"reproduce-{name}"] = ["reproduce", name, "--json"]
    return commands


def run(name: str, arguments: list[str]) -> str:
    """What a case prints and writes, cleaned of what differs from run to run."""
    with tempfile.TemporaryDirectory() as directory:
        words = [word.replace("{dir}", directory) for word in arguments]
        if words[0] in ("evaluate", "reproduce"):
            words += ["--out", f"{directory}/runs"]
        done = subprocess.run([sys.executable, "-m", "presilicon", *words], capture_output=True, text=True)
        text = f"exit {done.returncode}\n{done.stdout}"
        if done.returncode:
            text += done.stderr
        for path in sorted(Path(directory).rglob("*")):
            if path.suffix in (".sv", ".v", ".f", ".bin", ".mem", ".hex") and path.is_file():
                text += f"{path.relative_to(directory)} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}\n"
            if path.name == "events.jsonl":
                text += "".join(event_line(line) for line in path.read_text().splitlines())
        return clean(text.replace(directory, "DIR"))


def event_line(line: str) -> str:
    event = json.loads(line)
    return "" if event["event"] in ("result", "design") else json.dumps(event, sort_keys=True) + "\n"


def clean(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.\-]+Z?", "TIME", text)
    text = re.sub(r'"commit": *("[^"]*"|null)', '"commit": COMMIT', text)
    text = re.sub(r'"(search_s|solve_s|elapsed_s|wall_s|seconds)": *[\d.e-]+', r'"\1": 0', text)
    text = re.sub(r'"stream": "\w+"', '"stream": "STREAM"', text)
    return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)


def run_program(source: str) -> str:
    """What a program prints."""
    source = source.replace("FORMATS:", f"{FORMATS!r}:")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default="", help="Only cases whose name contains this.")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    chosen = {name: arguments for name, arguments in cases().items() if given.only in name}
    with ThreadPoolExecutor(2) as pool:
        texts = dict(zip(chosen, pool.map(run, chosen, chosen.values()), strict=True))
    for name, source in (("trace", TRACE), ("operators", OPERATORS)):
        if given.only in name:
            texts[name] = run_program(source)
    different = 0
    for name, text in texts.items():
        file = given.directory / f"{name}.txt"
        if given.what == "record":
            file.write_text(text)
            continue
        before = file.read_text() if file.exists() else ""
        if before != text:
            different += 1
            print(f"=== {name}")
            lines = difflib.unified_diff(before.splitlines(), text.splitlines(), "before", "after", lineterm="", n=0)
            print("\n".join(line[:300] for line in list(lines)[2:42]))
    print(f"{len(texts)} cases, {different} different", file=sys.stderr)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
