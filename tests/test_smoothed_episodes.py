"""From Python too, only episodes that can carry a certificate come back."""

import gymnasium as gym
import numpy as np
import pytest

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv, smoothed_episodes

NOISE = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.2}}


class Falls:
    """Always pushes to the left."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.zeros(len(observation), dtype=int), None


class SeesTheState(gym.ObservationWrapper):
    def observation(self, observation):
        return np.asarray(self.unwrapped.state, dtype=np.float32)


def test_episodes_are_those_of_the_seed_and_as_many_as_asked_for():
    environment = EvaluationEnv("CartPole-v1").with_noise(0.2)
    one, again, other = (smoothed_episodes(Falls(), environment, 100, seed=seed, n_envs=3) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.returns, again.returns)
    assert one.returns.shape == one.lengths.shape == (100,) and not np.array_equal(one.returns, other.returns)
    assert one.returns.min() >= 8 and one.returns.max() <= 11


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ([], "has no smoothing noise"),
        ([NOISE, f"{__name__}.SeesTheState"], "SeesTheState stands between the smoothing noise and the policy"),
        ([NOISE, "gymnasium.wrappers.NormalizeObservation"], "NormalizeObservation normalises"),
    ],
)
def test_what_could_carry_no_certificate_is_not_played(wrappers, message):
    with pytest.raises(InputError, match=message):
        smoothed_episodes(Falls(), EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": wrappers}), 10)
