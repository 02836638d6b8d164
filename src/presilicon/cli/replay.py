"""`presilicon replay`: the same training run, bit for bit, on a CPU and on the tensor cores of a GPU."""

import click

from presilicon.base import to_plain
from presilicon.cli.options import json_option, print_json


@click.command("replay")
@click.argument("recipe", metavar="[NUMERICS]", default="bf16")
@click.option("--steps", type=int, default=1000, help="Training steps.")
@click.option("--every", type=int, default=100, help="Steps between two hashes.")
@click.option("--seed", type=int, default=0, help="Seed of weights, batches and random roundings.")
@click.option("--device", default="cpu", help="cpu, or cuda for the tensor cores of a Hopper GPU.")
@json_option
def command(recipe: str, steps: int, every: int, seed: int, device: str, as_json: bool) -> None:
    """Train a small network with NUMERICS and the sums of tensor cores, and print hashes of its weights.

    Run it on a CPU and on a GPU: the hashes are the same. NUMERICS is a recipe or a TOML file whose operands tensor
    cores multiply, such as bf16, fp16-mixed, fp8-hybrid or mxfp8.
    """
    from presilicon.designs import load_numerics
    from presilicon.study import ReplayPoint, check_device, replay

    def show(point: ReplayPoint) -> None:
        click.echo(f"step {point.step:>6}  {point.sha256}  {point.correct:.0%} of the batch correct", err=as_json)

    check_device(device)
    result = replay(load_numerics(recipe), steps=steps, every=every, seed=seed, device=device, progress=show)
    if as_json:
        print_json(replay=to_plain(result))
    else:
        click.echo(f"{recipe} on {result.device}; sums: {result.unit}")
