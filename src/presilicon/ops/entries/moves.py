"""Entries of copies, allocations, random numbers and other operators that compute nothing or little."""

from typing import Any

from presilicon.ops.entry import Captured, OpEntry, plain

_ALLOCATES: dict[str, Any] = {"allocates": True}
_FILLS: dict[str, Any] = {"overwrites": True}

ENTRIES: list[OpEntry] = [
    *plain("copy", "copy fill zero", **_FILLS),
    *plain("copy", "clone", table_kind="Transpose", attention="move", copies=True),
    *plain("copy", "contiguous permute_copy", table_kind="Transpose"),
    *plain("copy", "to_copy", attention="move"),
    *plain("copy", "ones zeros scalar_tensor ones_like zeros_like", attention="mask"),
    *plain("copy", "tril triu", attention="mask", is_triangle=True),
    *plain("copy", "cat stack", table_kind="Concat"),
    *plain("copy", """
        full full_like new_zeros new_ones new_full arange linspace eye constant_pad_nd reflection_pad1d
        reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d slice_backward
        select_backward diagonal_backward as_strided_backward unfold_backward slice_scatter select_scatter
        diagonal_scatter as_strided_scatter roll flip diag_embed pixel_shuffle pixel_unshuffle channel_shuffle
        im2col reshape_copy view_copy expand_copy"""),
    *(
        OpEntry(name=name, functions=(name,), forward=Captured(names=(name,), kind="copy"), handling="spreads")
        for name in ("repeat", "repeat_interleave")
    ),
    *(
        OpEntry(name=name, functions=(name,), handling="spreads")
        for name in ("expand", "expand_as", "broadcast_to", "tile")
    ),
    *plain("random", "bernoulli normal uniform random exponential geometric log_normal cauchy", **_FILLS),
    *plain("random", "rand randn randint randperm rand_like randn_like randint_like multinomial"),
    *plain("other", """
        empty empty_like empty_strided empty_permuted new_empty new_empty_strided lift t_ transpose_ squeeze_ unsqueeze_
        swapaxes_ swapdims_ as_strided_ detach_""", **_ALLOCATES),
    *plain("other", "detach alias lift_fresh _unsafe_view _reshape_alias", is_alias=True, **_ALLOCATES),
    *plain("other", "resize_ set_", resizes=True, **_ALLOCATES),
    *plain("other", "resize_as_ resize_as_sparse_", resizes=True, multiplies=False),
    *plain("other", "mkldnn_rnn_layer mkldnn_rnn_layer_backward", at_once=True),
    *plain("other", "lift_fresh_copy local_scalar_dense complex", computes=False),
    *plain("other", """
        reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward
        replication_pad2d_backward replication_pad3d_backward polar cumprod_backward masked_scale
        functional_assert_async resize_as jagged_to_padded_dense_forward padded_dense_to_jagged_forward sparse_mask
        sparse_coo_tensor_with_dims_and_tensors pack_padded_sequence pack_padded_sequence_backward
        pad_packed_sequence""", multiplies=False),
]  # fmt: skip
