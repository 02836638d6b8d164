"""Recurrent layers decomposed into emulated products for the gates and vector ops for the rest.

All cells run on packed rows: time step t has a row for each sequence that has not ended, the longest first. In a dense
batch no sequence ends early. The input's part of every gate is one product over all time steps, the hidden state's part
one product per step, and each weight's gradient is rounded once, after all steps are added.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from presilicon.emulation.ops.arithmetic import Arithmetic

State = tuple[Tensor, ...]
"""The hidden state, and for an LSTM the cell state."""

Cell = Callable[[Arithmetic, Tensor, Tensor, State], State]
"""Computes the next state from the input's part of the gates, the hidden state's part, and the state."""


class _Weights(NamedTuple):
    """Weights of one layer in one direction."""

    input: Tensor
    hidden: Tensor
    input_bias: Tensor | None
    hidden_bias: Tensor | None
    projection: Tensor | None


def _lstm_step(do: Arithmetic, from_input: Tensor, from_hidden: Tensor, state: State) -> State:
    """Gates i, f, g, o: c' = f c + i g and h' = o tanh(c')."""
    gates = do.apply(torch.add, from_input, from_hidden)
    i, f, g, o = gates.chunk(4, dim=-1)
    i, f, o = (do.apply(torch.sigmoid, gate) for gate in (i, f, o))
    g = do.apply(torch.tanh, g)
    cell = do.apply(torch.add, do.apply(torch.mul, f, state[1]), do.apply(torch.mul, i, g))
    return do.apply(torch.mul, o, do.apply(torch.tanh, cell)), cell


def _gru_step(do: Arithmetic, from_input: Tensor, from_hidden: Tensor, state: State) -> State:
    """Gates r, z, n: n = tanh(x + r h) and h' = n + z (h - n)."""
    x_r, x_z, x_n = from_input.chunk(3, dim=-1)
    h_r, h_z, h_n = from_hidden.chunk(3, dim=-1)
    r = do.apply(torch.sigmoid, do.apply(torch.add, x_r, h_r))
    z = do.apply(torch.sigmoid, do.apply(torch.add, x_z, h_z))
    n = do.apply(torch.tanh, do.apply(torch.add, x_n, do.apply(torch.mul, r, h_n)))
    carried = do.apply(torch.mul, z, do.apply(torch.sub, state[0], n))
    return (do.apply(torch.add, n, carried),)


def _tanh_step(do: Arithmetic, from_input: Tensor, from_hidden: Tensor, state: State) -> State:
    return (do.apply(torch.tanh, do.apply(torch.add, from_input, from_hidden)),)


def _relu_step(do: Arithmetic, from_input: Tensor, from_hidden: Tensor, state: State) -> State:
    return (do.apply(functional.relu, do.apply(torch.add, from_input, from_hidden)),)


CELLS: dict[str, Cell] = {"lstm": _lstm_step, "gru": _gru_step, "rnn_tanh": _tanh_step, "rnn_relu": _relu_step}
"""The functions of torch that run whole layers, by name; a name and `_cell` is a single step."""


def run_cell(
    step: Cell,
    do: Arithmetic,
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor | State:
    """`torch.lstm_cell` and its relatives: the next hidden state, and for an LSTM the next cell state."""
    state = _states(hx)
    after = step(do, do.linear(input, w_ih, b_ih), do.linear(state[0], w_hh, b_hh), state)
    return after[0] if isinstance(hx, Tensor) else after


def run_layers(step: Cell, do: Arithmetic, input: Tensor, second: Any, *rest: Any) -> tuple[Tensor, ...]:
    """`torch.lstm` and its relatives: the output of all layers, the hidden states, and for an LSTM the cell states.

    A padded batch has the arguments (input, hx, weights, ...), a packed one (data, batch_sizes, hx, weights, ...).
    """
    if isinstance(rest[1], list | tuple):  # packed
        hx, weights, biases, layers, dropout, training, bidirectional = rest
        sizes: list[int] = second.tolist()
        states = _states(hx)
        data, finals = _layers(
            do, step, input, sizes, states, weights, biases, layers, dropout, training, bidirectional
        )
        return (data, *finals)
    hx, (weights, biases, layers, dropout, training, bidirectional, batch_first) = second, rest
    steps = input.transpose(0, 1) if batch_first else input
    length, batch = steps.shape[:2]
    rows = steps.reshape(length * batch, -1)
    states, sizes = _states(hx), [batch] * length
    data, finals = _layers(do, step, rows, sizes, states, weights, biases, layers, dropout, training, bidirectional)
    out = data.view(length, batch, -1)
    return (out.transpose(0, 1) if batch_first else out, *finals)


def _states(hx: Tensor | Sequence[Tensor]) -> State:
    return (hx,) if isinstance(hx, Tensor) else tuple(hx)


def _layers(
    do: Arithmetic,
    step: Cell,
    data: Tensor,
    sizes: list[int],
    states: State,
    flat: Sequence[Tensor],
    biases: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
) -> tuple[Tensor, State]:
    """The output of the last layer, and the final states of all layers."""
    directions = 2 if bidirectional else 1
    count = len(flat) // (layers * directions)
    finals: list[State] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = _weights(do, flat[index * count : (index + 1) * count], biases)
            first = tuple(state[index] for state in states)
            output, final = _direction(do, step, data, sizes, first, weights, backward=direction == 1)
            outputs.append(output)
            finals.append(final)
        data = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        if dropout and training and layer < layers - 1:
            data = do.apply(functional.dropout, data, dropout)
    return data, tuple(torch.stack(parts) for parts in zip(*finals, strict=True))


def _weights(do: Arithmetic, flat: Sequence[Tensor], biases: bool) -> _Weights:
    held = [do.hold_weight(weight) for weight in flat]
    count = 4 if biases else 2
    input_bias, hidden_bias = held[2:4] if biases else (None, None)
    assert held[0] is not None
    assert held[1] is not None
    return _Weights(held[0], held[1], input_bias, hidden_bias, held[count] if len(held) > count else None)


def _direction(
    do: Arithmetic, step: Cell, data: Tensor, sizes: list[int], state: State, weights: _Weights, backward: bool
) -> tuple[Tensor, State]:
    """One layer in one direction over packed rows: the output rows in the same order, and the final state."""
    from_input = do.linear(data, weights.input, weights.input_bias, held=True).split(sizes)
    outputs: list[Tensor] = [data] * len(sizes)
    first, ended = state, []
    rows = sizes[-1] if backward else sizes[0]
    state = tuple(part[:rows] for part in first)
    for time in reversed(range(len(sizes))) if backward else range(len(sizes)):
        if sizes[time] < rows:  # sequences that have ended keep their state
            ended.append(tuple(part[sizes[time] :] for part in state))
            state = tuple(part[: sizes[time]] for part in state)
        elif sizes[time] > rows:  # going backward, longer sequences begin before shorter ones
            state = tuple(
                torch.cat([part, begun[rows : sizes[time]]]) for part, begun in zip(state, first, strict=True)
            )
        rows = sizes[time]
        from_hidden = do.linear(state[0], weights.hidden, weights.hidden_bias, held=True)
        state = step(do, from_input[time], from_hidden, state)
        if weights.projection is not None:
            state = (do.linear(state[0], weights.projection, None, held=True), *state[1:])
        outputs[time] = state[0]
    for part in reversed(ended):
        state = tuple(torch.cat(both) for both in zip(state, part, strict=True))
    return torch.cat(outputs), state
