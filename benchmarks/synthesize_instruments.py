"""Every synthesis of `presilicon reproduce instrument-area`, side by side; results go into the cache, or a file.

    python benchmarks/synthesize_instruments.py --jobs 8 --write src/presilicon/rtl/data/synthesis.json

Small ones take a quarter of a minute, 128 lanes many minutes each; what is known already costs nothing. `--clocks`
estimates the clocks of the variants too, about ten minutes each. `--write` puts all known results into the file that
comes with the package.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from presilicon.base.files import cache_directory
from presilicon.rtl.synthesis import area_name, clock_name, estimate_clock, shipped
from presilicon_evidence.reproductions.instrument_area import Clocked, Part, every_clock, every_part


def run(part: Part | Clocked) -> tuple[str, float]:
    began = time.perf_counter()
    if isinstance(part, Part):
        found = f"{part.area.luts} ALUTs"
    else:
        found = f"{estimate_clock(part.top, part.parameters).fmax_mhz:.1f} MHz"
    return f"{part.top} {part.parameters} {found}", time.perf_counter() - began


def lanes_of(part: Part | Clocked) -> int:
    return part.parameters.get("LANES", part.parameters.get("N", 0))


def write(target: Path) -> None:
    names = {area_name(part.top, part.parameters, flat=part.flat) for part in every_part()}
    names |= {clock_name(part.top, part.parameters) for part in every_clock()}
    found = {name: result for name, result in shipped().items() if name in names}
    for path in sorted((cache_directory("rtl") / "synthesis").glob("*.json")):
        if path.stem in names:
            found[path.stem] = json.loads(path.read_text())
    for result in found.values():
        if "cells" in result:
            result["cells"] = {cell: count for cell, count in result["cells"].items() if "$" not in cell}
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(found)} results in {target}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--lanes", type=int, default=128, help="the widest instrument")
    options.add_argument("--clocks", action="store_true")
    options.add_argument("--write", type=Path)
    given = options.parse_args()
    parts: list[Part | Clocked] = [*every_part(), *(every_clock() if given.clocks else ())]
    wanted = sorted((each for each in parts if lanes_of(each) <= given.lanes), key=lanes_of, reverse=True)
    unique = list({str(part): part for part in wanted}.values())
    with ProcessPoolExecutor(given.jobs) as pool:
        for number, done in enumerate(as_completed([pool.submit(run, part) for part in unique])):
            text, seconds = done.result()
            print(f"{number + 1} of {len(unique)}: {text}, {seconds:.0f} s", flush=True)
    if given.write is not None:
        write(given.write)


if __name__ == "__main__":
    main()
