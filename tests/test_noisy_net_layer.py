"""The noisy linear layer against the formulas of Fortunato et al. 2018: y = (W + S * f(a) f(b)^T) x + w + s * f(a)."""

import math

import pytest
import torch as th
from torch import nn

from sb3_camp.noisy_net import NoisyLinear
from sb3_camp.noisy_net.layers import make_linear_layers_noisy, weight_noise

E_F2 = math.sqrt(2 / math.pi)  # E f(e)^2 = E |e|


def random_layer(n_inputs: int = 3, n_outputs: int = 2) -> NoisyLinear:
    """With a different standard deviation for each entry, in double precision."""
    th.manual_seed(0)
    layer = NoisyLinear(n_inputs, n_outputs, dtype=th.float64)
    with th.no_grad():
        layer.weight_sigma.uniform_(0.2, 1)
        layer.bias_sigma.uniform_(0.2, 1)
    return layer


def drawn_noise(layer: NoisyLinear) -> tuple[th.Tensor, th.Tensor]:
    """The noise of one draw on the weights, shape (outputs, inputs), and on the bias, shape (outputs,), in units of sigma."""
    n = layer.in_features
    with th.no_grad():
        output = layer(th.cat([th.zeros(1, n, dtype=th.float64), th.eye(n, dtype=th.float64)]))
    bias, weight = output[0], (output[1:] - output[0]).T
    return (weight - layer.weight) / layer.weight_sigma, (bias - layer.bias) / layer.bias_sigma


@pytest.mark.parametrize("n_inputs", [4, 400])
def test_initial_means_are_uniform_and_initial_sigma_is_sigma_0_over_root_p(n_inputs):
    th.manual_seed(0)
    layer = NoisyLinear(n_inputs, 2000)
    bound = 1 / math.sqrt(n_inputs)
    for mean in (layer.weight, layer.bias):
        assert mean.abs().max() <= bound
        assert mean.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    for sigma in (layer.weight_sigma, layer.bias_sigma):
        assert th.allclose(sigma, th.tensor(0.5 * bound))
    assert th.allclose(NoisyLinear(4, 3, sigma_init=0.1).weight_sigma, th.tensor(0.05))


@pytest.fixture(scope="module")
def draws() -> tuple[th.Tensor, th.Tensor]:
    layer = random_layer()
    weights, biases = zip(*(drawn_noise(layer) for _ in range(6000)), strict=True)
    return th.stack(weights), th.stack(biases)


def test_mean_and_variance_of_the_weights(draws):
    weights, biases = draws
    # In units of sigma: mean 0 (so that the mean of the weights is `weight`), variances E f^2 E f^2 and E f^2
    assert weights.mean(dim=0).abs().max() < 0.05 and biases.mean(dim=0).abs().max() < 0.05
    assert th.allclose(weights.var(dim=0), th.full((2, 3), E_F2**2, dtype=th.float64), rtol=0.08)
    assert th.allclose(biases.var(dim=0), th.full((2,), E_F2, dtype=th.float64), rtol=0.05)


def test_noise_is_factorised(draws):
    weights, biases = draws
    noise_in = weights[:, 0] / biases[:, :1]
    assert th.allclose(weights, biases[:, :, None] * noise_in[:, None], atol=1e-9), "f(e_out) is not that of the bias"
    # Entries of a row are uncorrelated, but not independent: they share f(e_out), and E f^4 = E e^2 = 1
    assert (weights[:, 0, 0] * weights[:, 0, 1]).mean().abs() < 0.05
    same_row = (weights[:, 0, 0] * weights[:, 0, 1]).square().mean()
    apart = (weights[:, 0, 0] * weights[:, 1, 1]).square().mean()
    assert same_row.item() == pytest.approx(E_F2**2, rel=0.15)
    assert apart.item() == pytest.approx(E_F2**4, rel=0.15)


def test_gradients_of_mean_and_sigma():
    layer = random_layer()
    th.manual_seed(7)
    weight_noise, bias_noise = drawn_noise(layer)
    inputs = th.randn(5, 3, dtype=th.float64)
    outer_gradient = th.randn(5, 2, dtype=th.float64)
    th.manual_seed(7)
    layer(inputs).backward(outer_gradient)
    of_weight, of_bias = outer_gradient.T @ inputs, outer_gradient.sum(dim=0)
    assert th.allclose(layer.weight.grad, of_weight)
    assert th.allclose(layer.bias.grad, of_bias)
    assert th.allclose(layer.weight_sigma.grad, of_weight * weight_noise)
    assert th.allclose(layer.bias_sigma.grad, of_bias * bias_noise)


@pytest.mark.parametrize("shape", [(4, 3), (4, 6, 3)])
def test_one_draw_for_a_batch_one_for_each_row_or_none(shape):
    layer = random_layer()
    inputs = th.ones(shape, dtype=th.float64)
    outputs = {}
    for noise in ("batch", "row", "off"):
        layer.noise = noise
        outputs[noise] = layer(inputs).detach()
        assert outputs[noise].shape == (*shape[:-1], 2)
    flat = {noise: output.reshape(4, -1, 2) for noise, output in outputs.items()}
    assert len(flat["batch"].reshape(-1, 2).unique(dim=0)) == 1
    assert len(flat["row"][:, 0].unique(dim=0)) == 4
    assert th.equal(flat["row"], flat["row"][:, :1].expand_as(flat["row"]))
    assert th.equal(outputs["off"], nn.functional.linear(inputs, layer.weight, layer.bias))
    assert not th.equal(outputs["batch"], outputs["off"])


def test_rows_are_independent_draws_of_the_same_law():
    layer = random_layer()
    layer.noise = "row"
    outputs = layer(th.ones(40_000, 3, dtype=th.float64)).detach()
    # y_i = mean + f_i (sum_j S_ij f_j + s_i)
    variances = E_F2 * (E_F2 * layer.weight_sigma.square().sum(dim=1) + layer.bias_sigma.square())
    assert th.allclose(outputs.mean(dim=0), layer.weight.sum(dim=1) + layer.bias, atol=0.03)
    assert th.allclose(outputs.var(dim=0), variances, rtol=0.05)
    centred = outputs - outputs.mean(dim=0)
    assert ((centred[1:] * centred[:-1]).mean(dim=0) / variances).abs().max() < 0.03


def test_each_forward_draws_anew_unless_the_layer_is_in_evaluation_mode():
    layer, inputs = random_layer(), th.ones(1, 3, dtype=th.float64)
    assert not th.equal(layer(inputs), layer(inputs))
    layer.eval()
    assert th.equal(layer(inputs), layer(inputs))
    layer.train()
    assert not th.equal(layer(inputs), layer(inputs))


def test_the_choice_of_noise_ends_with_its_context_also_after_an_error():
    first, second = random_layer(), random_layer().eval()
    module = nn.Sequential(first, nn.Sequential(second))
    with pytest.raises(KeyError), weight_noise(module, "row"):
        assert first.noise == second.noise == "row"
        raise KeyError
    assert (first.noise, second.noise) == ("batch", "off")


def test_only_parameters_are_saved():
    assert set(random_layer().state_dict()) == {"weight", "bias", "weight_sigma", "bias_sigma"}


def test_noise_is_drawn_on_the_device_and_in_the_precision_of_the_layer():
    output = NoisyLinear(3, 2, device="meta", dtype=th.float16)(th.empty(4, 3, device="meta", dtype=th.float16))
    assert output.device.type == "meta" and output.dtype == th.float16
    if th.cuda.is_available():
        layer = NoisyLinear(3, 2).to("cuda")
        th.manual_seed(0)
        first = layer(th.ones(1, 3, device="cuda"))
        th.manual_seed(0)
        assert th.equal(first, layer(th.ones(1, 3, device="cuda")))


def test_linear_layers_at_any_depth_become_noisy_around_the_same_mean():
    class OwnLinear(nn.Linear):
        pass

    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4, bias=False), OwnLinear(4, 2))).eval()
    inputs = th.randn(5, 3)
    before = module(inputs)
    make_linear_layers_noisy(module, sigma_init=0.3)
    make_linear_layers_noisy(module, sigma_init=0.9)  # there is nothing left to replace
    assert [type(module[0]), type(module[2][0]), type(module[2][1])] == [NoisyLinear, NoisyLinear, OwnLinear]
    assert module[0].sigma_init == module[2][0].sigma_init == 0.3
    assert module[2][0].bias is None and module[2][0].bias_sigma is None
    assert th.equal(module(inputs), before)
    module.train()
    assert not th.equal(module(inputs), module(inputs))
