"""The clocks behind a signal, against a walk from the registers forward, on random netlists with memories."""

import random
from typing import Any

import pytest

from presilicon.rtl.clocks import Clocks


class Design:
    """A random netlist as Yosys writes it, and the clocks and instances that each of its nets depends on."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.cells: dict[str, Any] = {}
        self.ports: dict[str, Any] = {}
        self.nets: dict[int, set[str]] = {}
        """What is behind each net."""
        self.count = 1
        self.clocks = [self.port(name) for name in ("clk", "fast", "slow")]
        self.roots = dict(zip(self.clocks, ("clk", "fast", "slow"), strict=True))
        for _ in range(2):
            self.clocks.append(self.buffered_clock())
        self.data = [self.port(f"in{index}") for index in range(3)]
        for index in range(14):
            self.draw.choice((self.gate, self.gate, self.register, self.memory, self.instance))(f"cell{index}")

    def net(self, behind: set[str]) -> int:
        self.count += 1
        self.nets[self.count] = behind
        return self.count

    def port(self, name: str) -> int:
        bit = self.net(set())
        self.ports[name] = {"bits": [bit], "direction": "input"}
        return bit

    def buffered_clock(self) -> int:
        source = self.draw.choice(self.clocks)
        bit = self.net(set())
        kind = self.draw.choice(("$not", "$_BUF_", "$_NOT_"))
        self.add(f"buffer{bit}", kind, {"A": [source]}, {"Y": [bit]})
        self.roots[bit] = self.roots[source]
        return bit

    def add(self, name: str, kind: str, inputs: dict, outputs: dict, parameters: dict | None = None) -> None:
        directions = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
        connections = inputs | outputs
        self.cells[name] = {
            "type": kind, "port_directions": directions, "connections": connections, "parameters": parameters or {},
        }  # fmt: skip

    def behind(self, bits: list) -> set[str]:
        return set().union(*(self.nets[bit] for bit in bits if isinstance(bit, int)))

    def some(self, count: int) -> list:
        return [self.draw.choice([*self.data, "0"]) for _ in range(count)]

    def gate(self, name: str) -> None:
        a, b = self.some(2), self.some(1)
        out = self.net(self.behind([*a, *b]))
        self.add(name, self.draw.choice(("$and", "$add", "$mux")), {"A": a, "B": b}, {"Y": [out]})
        self.data.append(out)

    def register(self, name: str) -> None:
        clock = self.draw.choice(self.clocks)
        out = self.net({self.roots[clock]})
        kind, pins = self.draw.choice((("$dff", ("CLK", "D", "Q")), ("$_DFF_P_", ("C", "D", "Q"))))
        self.add(name, kind, {pins[0]: [clock], pins[1]: self.some(1)}, {pins[2]: [out]})
        self.data.append(out)

    def memory(self, name: str) -> None:
        """Two or three read ports, each asynchronous or with a clock of its own, and up to two write ports."""
        reads, writes, width, address = self.draw.randint(1, 3), self.draw.randint(0, 2), 2, 2
        write_clocks = [self.draw.choice(self.clocks) for _ in range(writes)]
        read_clocks = [self.draw.choice(self.clocks) for _ in range(reads)]
        is_clocked = [self.draw.random() < 0.5 for _ in range(reads)]
        addresses = self.some(reads * address)
        outputs = []
        for port in range(reads):
            own = addresses[port * address : (port + 1) * address]
            stored = {self.roots[clock] for clock in write_clocks}
            behind = {self.roots[read_clocks[port]]} if is_clocked[port] else stored | self.behind(own)
            outputs += [self.net(set(behind)) for _ in range(width)]
        self.add(
            name, "$mem_v2",
            {"RD_ADDR": addresses, "RD_CLK": [c if on else "x" for c, on in zip(read_clocks, is_clocked, strict=True)],
             "RD_EN": ["1"] * reads, "WR_CLK": write_clocks, "WR_ADDR": self.some(writes * address),
             "WR_DATA": self.some(writes * width)},
            {"RD_DATA": outputs},
            {"RD_CLK_ENABLE": "".join("01"[on] for on in reversed(is_clocked)), "RD_PORTS": f"{reads:032b}",
             "WIDTH": f"{width:032b}", "ABITS": f"{address:032b}"},
        )  # fmt: skip
        self.data += outputs

    def instance(self, name: str) -> None:
        out = self.net({f'the instance "{name}" of vendor_ip'})
        self.add(name, "vendor_ip", {"i": self.some(1)}, {"o": [out]})
        self.data.append(out)


@pytest.mark.parametrize("seed", range(60))
def test_the_clocks_behind_a_signal_are_those_that_reach_it_from_the_registers(seed: int) -> None:
    design = Design(seed)
    module = {"ports": design.ports, "cells": design.cells, "netnames": {}}
    clocks = Clocks(module, "clk")
    names = {"clk", "fast", "slow"}
    for count in (1, 1, 2, 3):
        for _ in range(8):
            bits = design.draw.choices([*design.data, "0"], k=count)
            found, unknown = clocks.behind(bits)
            behind = design.behind(bits)
            assert {clocks.name(clock) for clock in found} == behind & names
            assert set(unknown) == behind - names
