"""Functions of torch that operators replace, by name."""

from presilicon.base import unknown
from presilicon.operators.exact import EXACT

_ELEMENTWISE = """
    abs neg negative exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin acos atan sinh
    cosh asinh acosh atanh tanh sigmoid logit erf erfc erfinv sinc ceil floor round trunc frac sign
    relu relu6 elu selu celu gelu silu mish softplus softsign hardtanh hardswish hardsigmoid leaky_relu prelu rrelu
    logsigmoid tanhshrink softshrink hardshrink threshold glu clamp clamp_min clamp_max clip nan_to_num pow float_power
    add sub subtract mul multiply div divide true_divide rsub maximum minimum fmax fmin atan2 hypot lerp addcmul addcdiv
    remainder fmod outer ger kron xlogy xlog1py logaddexp logaddexp2 cross ldexp arcsin arccos arctan arcsinh arccosh
    arctanh arctan2 expit ndtr log_ndtr entr lgamma digamma i0 deg2rad rad2deg
    __radd__ __rsub__ __rmul__ __rdiv__ __rtruediv__ __pow__ __rpow__
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout"""
_REDUCTIONS = """
    sum mean nansum nanmean var std var_mean std_mean prod norm logsumexp cumsum cumprod amax amin max min
    vector_norm softmax log_softmax softmin gumbel_softmax cosine_similarity pairwise_distance normalize dist trace diff
    trapezoid trapz logcumsumexp scatter_add scatter_reduce index_add index_reduce segment_reduce fold"""
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
VECTOR_FUNCTIONS: tuple[str, ...] = tuple(" ".join((_ELEMENTWISE, _REDUCTIONS, _NORMS, _POOLS, _LOSSES)).split())
"""Functions that do not multiply matrices."""
PRODUCTS: tuple[str, ...] = (
    *("matmul", "mm", "bmm", "linear", "conv1d", "conv2d", "conv3d"),
    *("scaled_dot_product_attention", "cross_entropy", "mse_loss"),
)
"""Matrix products, and functions that contain some or are losses."""
REPLACEABLE = frozenset([*EXACT, *VECTOR_FUNCTIONS, *PRODUCTS])


def split_pattern(replaces: str) -> tuple[str, str]:
    """The pattern of layers, empty for all, and the function's name, of what an operator replaces.

    >>> split_pattern("blocks.*.softmax"), split_pattern("softmax.exp"), split_pattern("relu")
    (('blocks.*', 'softmax'), ('', 'softmax.exp'), ('', 'relu'))
    """
    for name in ("softmax.exp", replaces.rpartition(".")[2]):
        if replaces == name:
            return "", name
        if replaces.endswith(f".{name}"):
            return replaces.removesuffix(f".{name}"), name
    return "", replaces


def check_function(replaces: str) -> str:
    """The function's name in what an operator replaces.

    Raises:
        ConfigError: there is no such function to replace.
    """
    name = split_pattern(replaces)[1]
    if name not in REPLACEABLE:
        raise unknown("function to replace", name, sorted(REPLACEABLE))
    return name
