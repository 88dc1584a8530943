"""The zoo's name for SB3's DQN on noisy observations."""

from stable_baselines3 import DQN

from sb3_camp.buffer_on_first_use import buffer_on_first_use


class GaussianDQN(DQN):
    """
    SB3's ``DQN``: the name stands for hyper-parameters that train it on noisy observations.

    Its checkpoints are those of ``DQN``, which loads them as well. The one difference is that a model that was loaded without
    an environment, as the zoo does it to play, has no memory for a replay buffer yet.
    """

    def _setup_model(self) -> None:
        with buffer_on_first_use(self):
            super()._setup_model()
