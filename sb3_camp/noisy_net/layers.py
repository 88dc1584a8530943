"""Linear layers with factorised Gaussian noise on their weights (NoisyNet)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch as th
from torch import nn
from torch.nn import functional as F

WeightNoise = Literal["off", "batch", "row"]


class NoisyLinear(nn.Linear):
    """
    Linear layer whose weights are random, with a mean and a standard deviation that are learned::

        y = (weight + weight_sigma * f(e_out) f(e_in)^T) x + bias + bias_sigma * f(e_out),    f(e) = sgn(e) sqrt(|e|)

    with e_in ~ N(0, I) of the size of the input and e_out ~ N(0, I) of the size of the output. Nothing of a draw is kept: each
    forward pass takes fresh ones from PyTorch's generator of the device. The attribute ``noise`` says which:

    - "off": none, the mean weights
    - "batch": one for the whole batch, as the paper trains
    - "row": one for each entry of the first dimension, so that the rows (envs that are played side by side) are independent

    ``train()`` sets it to "batch", ``eval()`` to "off". Use :func:`weight_noise` to choose for some calls.

    Paper: Fortunato et al.: Noisy Networks for Exploration, ICLR 2018, section 3 (b).

    :param in_features: size of each input, the paper's p
    :param out_features: size of each output, the paper's q
    :param bias: Whether to add a (noisy) bias
    :param sigma_init: the paper's sigma_0: all standard deviations start as sigma_0 / sqrt(p); the means start uniform in
        +-1 / sqrt(p), as those of any linear layer in PyTorch
    :param device: Device of the parameters
    :param dtype: Data type of the parameters
    """

    noise: WeightNoise

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        sigma_init: float = 0.5,
        device: th.device | str | None = None,
        dtype: th.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.sigma_init = sigma_init
        sigma = sigma_init / math.sqrt(in_features)
        self.weight_sigma = nn.Parameter(th.full_like(self.weight, sigma))
        self.bias_sigma = nn.Parameter(th.full_like(self.bias, sigma)) if bias else None
        self.noise = "batch"

    def train(self, mode: bool = True) -> "NoisyLinear":
        self.noise = "batch" if mode else "off"
        return super().train(mode)

    def forward(self, input: th.Tensor) -> th.Tensor:
        """
        :param input: shape (..., in_features)
        :return: shape (..., out_features)
        """
        mean = super().forward(input)
        if self.noise == "off":
            return mean
        # The product of the noise with the input, without ever building the noisy weights
        noise_in, noise_out = self._draw(input)
        return mean + noise_out * F.linear(noise_in * input, self.weight_sigma, self.bias_sigma)

    def _draw(self, input: th.Tensor) -> tuple[th.Tensor, ...]:
        """f(e_in) and f(e_out), of a shape that broadcasts with the input."""
        rows = (input.shape[0], *[1] * (input.dim() - 2)) if self.noise == "row" and input.dim() > 1 else ()
        sizes = (self.in_features, self.out_features)
        epsilon = th.randn((*rows, sum(sizes)), device=self.weight.device, dtype=self.weight.dtype)
        return (epsilon.sign() * epsilon.abs().sqrt()).split(sizes, dim=-1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, sigma_init={self.sigma_init}"


def make_linear_layers_noisy(module: nn.Module, sigma_init: float = 0.5) -> None:
    """
    Replace every linear layer inside a module, at any depth, by a noisy one with the same mean weights.

    :param module: Changed in place; subclasses of ``nn.Linear`` stay as they are
    :param sigma_init: see :class:`NoisyLinear`
    """
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            has_bias, device, dtype = child.bias is not None, child.weight.device, child.weight.dtype
            layer = NoisyLinear(child.in_features, child.out_features, has_bias, sigma_init, device, dtype)
            layer.weight, layer.bias = child.weight, child.bias
            setattr(module, name, layer.train(child.training))
        else:
            make_linear_layers_noisy(child, sigma_init)


@contextmanager
def weight_noise(module: nn.Module, noise: WeightNoise) -> Iterator[None]:
    """
    Within this context the noisy layers of a module draw their noise in the given way, whatever the mode of the module is.

    :param module: The module
    :param noise: see :class:`NoisyLinear`
    """
    layers = [layer for layer in module.modules() if isinstance(layer, NoisyLinear)]
    before = [layer.noise for layer in layers]
    set_weight_noise(module, noise)
    try:
        yield
    finally:
        for layer, previous in zip(layers, before, strict=True):
            layer.noise = previous


def set_weight_noise(module: nn.Module, noise: WeightNoise) -> None:
    """
    Choose how the noisy layers of a module draw their noise, until ``train()`` or ``eval()`` is called.

    :param module: The module
    :param noise: see :class:`NoisyLinear`
    """
    for layer in module.modules():
        if isinstance(layer, NoisyLinear):
            layer.noise = noise
