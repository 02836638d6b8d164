"""`presilicon characterize-cpu`: the processor of this machine as a design."""

from pathlib import Path

import click

from presilicon.cli.characterize import characterizing_options, describe


@click.command("characterize-cpu")
@characterizing_options
@click.option("--threads", type=click.IntRange(1, 4096), help="Threads of torch; as many as it takes itself.")
def command(
    design: str, out: Path, minutes: float, times: Path | None, workloads: tuple[str, ...], settings: tuple[str, ...],
    threads: int | None,
) -> None:  # fmt: skip
    """Measure layers on the processor of this machine, and write a design that predicts steps on it.

    DESIGN has the peaks of the processor: a file whose machine is of the kind roofline, with [machine.matrix.float32]
    and, if it computes in it, [machine.matrix.bfloat16]. Energies stay those of the design.

    \b
    Example:
      presilicon characterize-cpu my_processor.toml --out my-processor --threads 8
      presilicon simulate my-processor/design.toml --workload digits-cnn --numerics fp32
    """
    from presilicon.cards import characterize_processor, check_peaks
    from presilicon.designs import load_design

    chosen = load_design(design, settings)
    check_peaks(chosen, ["fp32"])
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    describe(chosen, characterize_processor, out, minutes, times, workloads)
