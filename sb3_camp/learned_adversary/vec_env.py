"""The environment of an adversary that learns."""

from collections.abc import Callable
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from sb3_camp.attacks.adversary_view import AdversaryView
from sb3_camp.learned_adversary.games import Game, Question
from sb3_camp.wrappers.adversary import AttackAnswers


class AdversaryVecEnv(VecEnv):
    """
    A vectorized environment of SB3 in which an adversary acts: its actions perturb what a fixed policy observes, within what
    is left of the l2 budget of the episode, or within the bound on each step, and its reward is minus the policy's. See
    :class:`AdversaryView` for the spaces.

    ``seed`` seeds the envs of the game at the next reset; other resets begin it with new seeds.

    An episode of a native vector environment ends one step later than the policy's, with a step in which nothing happens.

    :param game: The policy at play
    :param view: What the adversary observes and what its actions mean
    :param n_envs: Number of envs of the game
    :param seed: Seed of the seeds
    :param shorten: Called with a bool array (n_envs,) of episodes that begin, and a generator: may cut their
        budgets, so that the adversary learns what to do with less, and returns what is left; None to leave them
    """

    render_mode = None

    def __init__(
        self,
        game: Game,
        view: AdversaryView,
        n_envs: int,
        seed: int,
        shorten: Callable[[np.ndarray, np.random.Generator], np.ndarray] | None = None,
    ) -> None:
        super().__init__(n_envs, view.observation_space, view.action_space)
        self.game, self.view = game, view
        self._shorten = shorten
        self._rng = self._of_game = np.random.default_rng(seed)
        self._question: Question | None = None
        self._actions = np.empty(0)
        self._last = np.empty(0)
        self._totals = np.zeros(n_envs)
        self.returns: list[float] = []
        """Returns of the policy in the episodes that have ended"""

    def reset(self) -> VecEnvObs:
        seed = int(self._rng.integers(2**31)) if self._seeds[0] is None else self._seeds[0]
        self._of_game = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        self._question = self.game.start(seed)
        self._reset_seeds()
        self._totals[:] = 0.0
        self._last = self._observed(self._question, np.ones(self.num_envs, dtype=bool))
        return self._last

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        assert self._question is not None
        requests = self._question.requests
        frames, norms = self.view.perturbed(self._actions, requests.frames[:, -1], requests.budget)
        # Whether the greedy action changes is nobody's question here
        self._question = self.game.answer(AttackAnswers(frames, norms, np.zeros(self.num_envs, dtype=bool)))
        dones = self._question.starts
        self._totals += self._question.rewards
        self.returns += self._totals[dones].tolist()
        self._totals[dones] = 0.0
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(dones):
            # Of the observation that ended the episode nothing is left, nor needed: no time limit cuts these episodes off
            infos[i]["terminal_observation"] = self._last[i]
        self._last = self._observed(self._question, dones)
        return self._last, -self._question.rewards.astype(np.float32), dones.copy(), infos

    def _observed(self, question: Question, starts: np.ndarray) -> np.ndarray:
        requests = question.requests
        if self._shorten is not None and starts.any():
            self._question = Question(
                requests._replace(budget=self._shorten(starts, self._of_game)), question.rewards, question.starts
            )
            requests = self._question.requests
        return self.view.observations(requests.frames[:, -1], requests.budget, requests.step)

    def close(self) -> None:
        self.game.stop()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(f"the envs of an adversary have no {method_name}")

    def env_is_wrapped(self, wrapper_class: Any, indices: VecEnvIndices = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))
