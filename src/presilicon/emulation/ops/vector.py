"""Torch functions that are vector ops: arithmetic that is not a matrix product.

`vector_functions` maps each such callable to a name (`torch.tanh`, `Tensor.tanh` and `functional.tanh` are all "tanh").
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch.nn import functional

_ELEMENTWISE = """
    abs neg negative exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin acos atan sinh
    cosh asinh acosh atanh tanh sigmoid logit erf erfc erfinv sinc ceil floor round trunc frac sign
    relu relu6 elu selu celu gelu silu mish softplus softsign hardtanh hardswish hardsigmoid leaky_relu prelu rrelu
    logsigmoid tanhshrink softshrink hardshrink threshold glu clamp clamp_min clamp_max clip nan_to_num pow float_power
    add sub subtract mul multiply div divide true_divide rsub maximum minimum fmax fmin atan2 hypot lerp addcmul addcdiv
    remainder fmod outer xlogy logaddexp cross
    __radd__ __rsub__ __rmul__ __rdiv__ __rtruediv__ __pow__ __rpow__
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout"""
_REDUCTIONS = """
    sum mean nansum nanmean var std var_mean std_mean prod norm logsumexp cumsum cumprod amax amin max min
    vector_norm softmax log_softmax softmin cosine_similarity pairwise_distance normalize"""
_NORMS = "layer_norm batch_norm group_norm instance_norm rms_norm local_response_norm"
_POOLS = """
    max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d adaptive_max_pool1d_with_indices
    adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices lp_pool1d lp_pool2d lp_pool3d
    interpolate grid_sample"""
_LOSSES = """
    nll_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div
    poisson_nll_loss gaussian_nll_loss hinge_embedding_loss margin_ranking_loss soft_margin_loss multi_margin_loss
    multilabel_margin_loss multilabel_soft_margin_loss cosine_embedding_loss triplet_margin_loss ctc_loss"""
_HOMES = (torch, torch.Tensor, functional, torch._C._nn, torch.special, torch.linalg)


@cache
def vector_functions() -> Mapping[Callable[..., Any], str]:
    """The name of every torch function that is a vector op, in-place variants included.

    >>> vector_functions()[torch.Tensor.add_], vector_functions()[functional.gelu]
    ('add', 'gelu')
    """
    table: dict[Callable[..., Any], str] = {}
    for name in " ".join((_ELEMENTWISE, _REDUCTIONS, _NORMS, _POOLS, _LOSSES)).split():
        spellings = [name] if name.startswith("__") else [name, f"{name}_"]
        for home in _HOMES:
            for spelling in spellings:
                function = getattr(home, spelling, None)
                if callable(function):
                    table[function] = name
    return table
