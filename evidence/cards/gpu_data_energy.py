"""Joules of one matrix product on the GPU at hand with operands of different entropy, beside toggles of our circuit.

    python evidence/cards/gpu_data_energy.py measure --out h200_data_energy.json    # on the card
    python evidence/cards/gpu_data_energy.py compare h200_data_energy.json          # anywhere

A product of 8192 x 8192 x 8192 in bfloat16 whose left operand has the given kind of numbers, the right one normal ones.
The card works half of the time, so that it stays below its power cap; joules are those above the same card waiting.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

SIDE, WINDOW_S, ROUNDS = 8192, 1.5, 2
KINDS = ("normal", "relu", "half zeros", "powers of two", "one of four", "ones", "zeros")


def operand(kind: str, shape: tuple[int, int], device: str) -> Tensor:
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(shape, generator=generator, device=device)
    if kind == "relu":
        return x.relu()
    if kind == "half zeros":
        return x * (torch.rand(shape, generator=generator, device=device) < 0.5)
    if kind == "powers of two":
        return x.sign() * x.abs().clamp(min=2**-20).log2().round().exp2()
    if kind == "one of four":
        return torch.randint(1, 5, shape, generator=generator, device=device).float()
    return {"normal": x, "ones": torch.ones_like(x), "zeros": torch.zeros_like(x)}[kind]


def measure(out: Path) -> None:
    from presilicon.scheduling import Nvml

    nvml, right = Nvml(), operand("normal", (SIDE, SIDE), "cuda").bfloat16()
    rows = []
    for repeat in range(ROUNDS):
        for kind in (*KINDS, "waiting"):
            left = operand("normal" if kind == "waiting" else kind, (SIDE, SIDE), "cuda").bfloat16()
            count, busy_s = 0, 0.0
            for window in (0.3, WINDOW_S):
                torch.cuda.synchronize()
                begin, joules, count, busy_s = time.perf_counter(), nvml.joules(), 0, 0.0
                while time.perf_counter() - begin < window:
                    start = time.perf_counter()
                    # While waiting, one product in a while keeps the clock up.
                    for _ in range(1 if kind == "waiting" else 12):
                        torch.matmul(left, right)
                        count += 1
                    torch.cuda.synchronize()
                    busy_s += time.perf_counter() - start
                    time.sleep(0.02)
            taken = time.perf_counter() - begin
            rows.append({
                "kind": kind, "round": repeat, "power_w": (nvml.joules() - joules) / taken, "products": count,
                "window_s": taken, "product_s": busy_s / count, "clock_mhz": nvml.clock_mhz(),
            })  # fmt: skip
            print(rows[-1], flush=True)
    out.write_text(json.dumps({"schema": 1, "device": torch.cuda.get_device_name(), "rows": rows}, indent=1) + "\n")


def compare(path: Path) -> None:
    from presilicon.formats import MacUnit, parse
    from presilicon.rtl import mac_energy_pj

    rows = json.loads(path.read_text())["rows"]

    def mean(kind: str, name: str) -> float:
        return sum(row[name] for row in rows if row["kind"] == kind) / ROUNDS

    # Joules of a product: window_s * (power - waiting) / (products - those while waiting, in the same time).
    waiting_w, waiting_rate = mean("waiting", "power_w"), mean("waiting", "products") / mean("waiting", "window_s")

    def joules(kind: str) -> float:
        rate = mean(kind, "products") / mean(kind, "window_s")
        return (mean(kind, "power_w") - waiting_w) / (rate - waiting_rate)

    bf16, unit = parse("bfloat16"), MacUnit(accumulate=parse("float32"))
    right = operand("normal", (16, 128), "cpu")
    normal_pj = mac_energy_pj(bf16, bf16, unit, operand("normal", (16, 128), "cpu"), right.flip(0))
    print("left operand      H200, J  of normal   circuit, pJ  of normal")
    for kind in KINDS:
        left = operand(kind, (16, 128), "cpu")
        pj = mac_energy_pj(bf16, bf16, unit, left, right.flip(0))
        print(f"{kind:16}{joules(kind):9.3f}{joules(kind) / joules('normal'):11.2f}{pj:14.2f}{pj / normal_pj:11.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("measure").add_argument("--out", type=Path, required=True)
    commands.add_parser("compare").add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command == "measure":
        measure(options.out)
    else:
        compare(options.file)


if __name__ == "__main__":
    main()
