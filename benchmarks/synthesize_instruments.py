"""Every synthesis of `presilicon reproduce instrument-area`, side by side; results go into the cache, or a file.

    python benchmarks/synthesize_instruments.py --jobs 8 --write src/presilicon/rtl/data/synthesis.json

Small ones take a quarter of a minute, 128 lanes many minutes each; what is known already costs nothing. `--write` puts
all known results into the file that comes with the package.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from presilicon.rtl.cache import cache_directory
from presilicon.rtl.synthesis import area_name, shipped
from presilicon.study.reproductions.instrument_area import Part, every_part


def run(part: Part) -> tuple[Part, int, float]:
    began = time.perf_counter()
    return part, part.area.luts, time.perf_counter() - began


def write(target: Path) -> None:
    names = {area_name(part.top, part.parameters, flat=part.flat) for part in every_part()}
    found = {name: result for name, result in shipped().items() if name in names or "fmax_mhz" in result}
    for path in sorted((cache_directory() / "synthesis").glob("*.json")):
        result = json.loads(path.read_text())
        if path.stem in names or "fmax_mhz" in result:
            found[path.stem] = result
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
    options.add_argument("--write", type=Path)
    given = options.parse_args()
    unique = {str(part): part for part in every_part()}
    wanted = [
        part for part in unique.values() if part.parameters.get("LANES", part.parameters.get("N", 0)) <= given.lanes
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        for number, done in enumerate(as_completed([pool.submit(run, part) for part in wanted])):
            part, luts, seconds = done.result()
            print(
                f"{number + 1} of {len(wanted)}: {part.top} {part.parameters} {luts} ALUTs, {seconds:.0f} s", flush=True
            )
    if given.write is not None:
        write(given.write)


if __name__ == "__main__":
    main()
