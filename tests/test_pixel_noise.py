import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats
from support.constant_env import ConstantEnv

from sb3_camp.wrappers import NoisyObservationWrapper
from sb3_camp.wrappers.observation_noise import ObservationNoise
from sb3_camp.wrappers.pixel_noise import rounded_noise

SIGMAS = [0.05, 0.3, 2.0, 12.75, 51.0, 1000.0]


def rounded_gaussian(sigma):
    """Probabilities of -255 to 255, clipped."""
    edges = (np.arange(1, 256) - 0.5) / sigma
    more = np.append(stats.norm.sf(edges), 0.0)
    half = more[:-1] - more[1:]
    return np.concatenate([half[::-1], [1 - 2 * more[0]], half])


class Scripted:
    """Hands out the 16 and the 53 digits that a test chose."""

    def __init__(self, cells, further):
        self.cells, self.further, self.asked = cells, further, 0

    def integers(self, low, high, size, dtype):
        assert (low, high, size) == (0, 2**16, len(self.cells))
        return np.asarray(self.cells, dtype=dtype)

    def random(self, size):
        self.asked += size
        return np.full(size, self.further)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_each_cell_holds_the_quantiles_of_the_rounded_gaussian(sigma):
    cells = np.arange(2**16)
    for further in (0.0, 0.25, 1 - 2.0**-53):
        rng = Scripted(cells, further)
        drawn = rounded_noise(sigma, cells.shape, rng)
        normal = sigma * stats.norm.isf((cells % 2**15 + 1 - further) / 2**16)
        exact = np.clip(np.where(cells < 2**15, normal, -normal), -255, 255)
        assert np.abs(drawn - exact).max() <= 0.5 + 1e-9
    assert 2 <= rng.asked <= 2 * 255


@pytest.mark.parametrize("sigma", SIGMAS[:-1])
def test_tails_are_those_of_the_gaussian_to_the_last_digits(sigma):
    # The cell at the end of the tail, 4.2 sigma and more: the least number of further digits that gives k
    for k in range(1, 256):
        probability = stats.norm.sf((k - 0.5) / sigma) * 2**16
        if not 2.0**-45 < probability < 1:
            continue
        inside, outside = (rounded_noise(sigma, (2,), Scripted([0, 2**15], 1 - probability * f)) for f in (0.99, 1.01))
        assert inside[0] >= k and outside[0] < k
        assert inside[1] == -inside[0] and outside[1] == -outside[0]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_counts_are_those_of_the_rounded_gaussian(sigma):
    n = 2_000_000
    noise = rounded_noise(sigma, (n,), np.random.default_rng(1))
    expected = n * rounded_gaussian(sigma)
    counts = np.bincount(noise + 255, minlength=511)
    rare = expected < 10
    observed, theory = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    kept = theory > 1
    assert observed[~kept].sum() <= 15
    if kept.sum() > 1:
        statistic = ((observed - theory)[kept] ** 2 / theory[kept]).sum()
        assert stats.chi2.sf(statistic, kept.sum() - 1) > 1e-3
    # One normal of double precision each, rounded: the same mean and variance
    twin = np.clip(np.rint(sigma * np.random.default_rng(2).standard_normal(n)), -255, 255)
    assert abs(noise.mean() - twin.mean()) < 5 * np.sqrt(2 / n) * max(twin.std(), 1e-3)


def test_frames_and_neighbours_are_independent():
    frames = rounded_noise(12.75, (300, 84, 84), np.random.default_rng(3)).astype(float)
    for one, other in ((frames[1:], frames[:-1]), (frames[:, 1:], frames[:, :-1]), (frames[..., 1:], frames[..., :-1])):
        for change in (np.asarray, np.abs):
            assert abs(np.corrcoef(change(one).ravel(), change(other).ravel())[0, 1]) < 5 / np.sqrt(one.size)


def test_no_noise_without_sigma():
    assert not rounded_noise(0.0, (5, 4), np.random.default_rng(0)).any()


@pytest.mark.parametrize("value", [0, 3, 128, 250, 255])
def test_a_noisy_pixel_is_the_rounded_and_clipped_sum(value):
    space = spaces.Box(0, 255, (1000, 1000, 1), np.uint8)
    noisy = ObservationNoise(space, 12.75)(np.full(space.shape, value, np.uint8), np.random.default_rng(4))
    edges = np.concatenate([[-np.inf], np.arange(255) + 0.5, [np.inf]])
    expected = noisy.size * np.diff(stats.norm.cdf(edges, value, 12.75))
    common = expected > 10
    counts = np.bincount(noisy.ravel(), minlength=256)
    statistic = ((counts - expected)[common] ** 2 / expected[common]).sum()
    assert noisy.dtype == np.uint8 and noisy.shape == space.shape
    assert stats.chi2.sf(statistic, common.sum() - 1) > 1e-3
    assert counts[~common].sum() < 2 * expected[~common].sum() + 10


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["deepcopy", "pickle"])
def test_a_seed_reproduces_the_noise_of_images_and_copies_go_on_like_the_original(copied):
    space = spaces.Box(0, 255, (84, 84, 1), np.uint8)
    env = NoisyObservationWrapper(ConstantEnv(space, np.full(space.shape, 128, np.uint8)), 12.75)
    first = env.reset(seed=7)[0]
    twin = copied(env)
    later = env.step(0)[0]
    np.testing.assert_array_equal(twin.step(0)[0], later)
    np.random.seed(0)
    np.testing.assert_array_equal(twin.reset(seed=7)[0], first)
    assert (first != later).mean() > 0.9 and (env.reset(seed=8)[0] != first).mean() > 0.9
