"""The same random numbers at each run, also of what a test leaves unseeded: a test that fails, fails for everybody."""

import itertools
import random

import gymnasium as gym
import numpy as np
import pytest
import torch as th


@pytest.fixture(autouse=True)
def _same_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds the global generators, which models without a seed draw from, and environments and spaces that nobody seeds."""
    random.seed(0)
    np.random.seed(0)
    th.manual_seed(0)
    seeds, np_random = itertools.count(), gym.utils.seeding.np_random
    monkeypatch.setattr(gym.utils.seeding, "np_random", lambda seed=None: np_random(next(seeds) if seed is None else seed))
