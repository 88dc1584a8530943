"""The Wang transform as the objective of SB3's on-policy algorithms."""

from collections import deque

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from sb3_camp.errors import InputError
from sb3_camp.risk.wang_transform import check_parameter, episode_weights


class WangTransformCallback(BaseCallback):
    """
    Lets PPO, A2C, TRPO and other on-policy algorithms learn for the certified return at a radius, in place of the mean return.

    The certified return at radius R is the mean return under the worst distribution of episodes that an attack could bring
    about: the Wang transform with parameter R / sigma (Wang 2000, see :mod:`sb3_camp.risk.wang_transform`). It weights an
    episode that a share u of all episodes equals or exceeds by g'(u), where g(u) = Phi(Phi^-1(u) - R / sigma). This callback
    multiplies the advantages of all steps of an episode by that weight, so that the policy gradient is the one under the
    worst distribution:

        mean over the steps t of all episodes of    g'(u of the episode) * A_t * gradient of log pi(a_t | o_t).

    The advantages A_t, and the value function that they come from, stay those of the mean return, so this is no exact gradient
    of the transform: it is a baseline that knows nothing of the weights.

    - Episodes are ranked by the undiscounted return that ``Monitor`` tells, which is what is certified, among the latest
      ``n_episodes`` finished ones; equal returns share what their ranks count.
    - An episode that runs on when the rollout ends has weight 1, the mean of all weights, as its return is not known yet. When
      it has ended, its steps in the then current rollout have its weight.
    - With parameter 0 all weights are 1, and the training is, bit for bit, the one without this callback.

    In the RL Zoo: ``callback: [{sb3_camp.risk.WangTransformCallback: {parameter: 2.0}}]``.

    :param parameter: R / sigma, at least 0; between 1 and 3 where certificates of 10,000 episodes are of use
    :param n_episodes: Number of finished episodes among which each is ranked
    :param verbose: Verbosity level
    :raises InputError: (a ValueError) for values that cannot be used; in the training, if the algorithm has no rollouts, or if
        the environment has no ``Monitor``
    """

    def __init__(self, parameter: float, n_episodes: int = 1000, verbose: int = 0) -> None:
        super().__init__(verbose)
        check_parameter(parameter)
        if n_episodes < 1:
            raise InputError(f"n_episodes must be at least 1, not {n_episodes}")
        self.parameter = float(parameter)
        self._latest: deque[float] = deque(maxlen=n_episodes)
        self._n_steps = 0
        # Step, env and return of each episode that ends in this rollout
        self._ended: list[tuple[int, int, float]] = []

    def _init_callback(self) -> None:
        if not isinstance(self.model, OnPolicyAlgorithm):
            raise InputError(f"WangTransformCallback is for on-policy algorithms such as PPO, not {type(self.model).__name__}")

    def _on_rollout_start(self) -> None:
        self._n_steps = 0
        self._ended.clear()

    def _on_step(self) -> bool:
        for i in np.flatnonzero(self.locals["dones"]).tolist():
            episode = self.locals["infos"][i].get("episode")
            if episode is None:
                raise InputError("WangTransformCallback needs the returns of episodes: wrap the environment in Monitor")
            self._ended.append((self._n_steps, i, float(episode["r"])))
        self._n_steps += 1
        return True

    def _on_rollout_end(self) -> None:
        if not self._ended:
            return
        returns = [episode_return for _, _, episode_return in self._ended]
        self._latest.extend(returns)
        sample = max(list(self._latest), returns, key=len)  # all of this rollout, be they more than n_episodes
        weights = episode_weights(returns, self.parameter, sample)
        assert isinstance(self.model, OnPolicyAlgorithm)
        advantages = self.model.rollout_buffer.advantages
        begins = np.zeros(advantages.shape[1], dtype=np.int64)
        for (step, i, _), weight in zip(self._ended, weights, strict=True):
            advantages[begins[i] : step + 1, i] *= weight
            begins[i] = step + 1
        self.logger.record("train/wang_weight_max", float(weights.max()))
        self.logger.record("train/wang_transform", float(np.mean(weights * returns)))
