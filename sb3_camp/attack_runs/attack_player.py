"""How the episodes of an attack are played: in a native vector environment where there is one, else one env by one."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.attack_names import LEARNED
from sb3_camp.attack_runs.attacked_env import AttackedFrames, attacked_environment
from sb3_camp.attack_runs.attacked_episodes import AttackedEpisodes, play_attacked_episodes, play_attacked_vector_episodes
from sb3_camp.attack_runs.observation_path import ObservationPathCheck
from sb3_camp.attacks.adversary_view import AdversaryView
from sb3_camp.attacks.norm import Norm
from sb3_camp.attacks.registry import Attack, chosen_attack
from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episode_plan import Chunk
from sb3_camp.evaluation.native import NotNative, has_known_native, opened_native, step_limit
from sb3_camp.policy_view import policy_view
from sb3_camp.threat_models import Threat, is_per_step
from sb3_camp.wrappers.adversarial_observation import default_step_size
from sb3_camp.wrappers.adversary import Adversary
from sb3_camp.wrappers.episode_budget import budgets_of
from sb3_camp.wrappers.frame_layout import FrameLayout
from sb3_camp.wrappers.learned import LearnedAdversary
from sb3_camp.wrappers.vector_adversary import VectorAdversary, insert_vector_adversary

_STEPS_WITHOUT_LIMIT = 1000

Play = Callable[[Chunk, Callable[[], object]], AttackedEpisodes]
"""Plays the episodes of a chunk, and calls its second argument after each."""


@dataclass(frozen=True)
class AttackPlayer:
    """
    The policy that is attacked, and the environment in which it plays.

    :param model: The policy
    :param environment: The environment, without the adversary
    :param frames: What an adversary sees and changes, see :func:`sb3_camp.attack_runs.attacked_env.attacked_frames`
    :param sigma: Standard deviation of the noise outside of the adversary, 0 for none
    :param native: Whether to play in the native vector environment
    :param n_envs: Envs that play at once
    :param deterministic: Whether the policy acts without random choices
    :param threat: The threat model
    :param draws: Over how many draws of the noise attacks average
    :param spread: Of the budget of an episode, at most budget / sqrt(spread) is spent at one observation
    """

    model: BaseAlgorithm
    environment: EvaluationEnv
    frames: AttackedFrames
    sigma: float
    native: bool
    n_envs: int
    deterministic: bool
    threat: Threat = "episode-l2"
    draws: int = 0
    spread: float = 1

    @contextlib.contextmanager
    def opened(self, attack: str, settings: dict[str, Any], budget: float) -> Iterator[Play]:
        """
        :param attack: Name of the attack
        :param settings: Its arguments
        :param budget: What may be spent, in the threat model
        :return: A context with what plays the chunks of an attack, in envs that are closed at its end
        """
        if self.native:
            adversary, layout = self._adversary(attack, settings, budget), self.layout()
            limit = step_limit(self.environment)
            with self.opened_native(budget) as (envs, wrapper):
                wrapper.attacker = lambda requests: adversary.perturb_all(requests, layout, None)
                yield lambda chunk, on_episode: play_attacked_vector_episodes(
                    self.model, envs, wrapper, chunk, limit, deterministic=self.deterministic, on_episode=on_episode
                )
        else:
            with self.opened_single(attack, settings, budget) as env:
                checked = ObservationPathCheck(env, self.model, exact=self.sigma == 0)
                yield lambda chunk, on_episode: play_attacked_episodes(
                    self.model, checked, chunk, deterministic=self.deterministic, on_episode=on_episode
                )

    @contextlib.contextmanager
    def opened_native(self, budget: float, n_envs: int | None = None) -> Iterator[tuple[VectorEnv, VectorAdversary]]:
        """
        :param budget: What may be spent, in the threat model
        :param n_envs: Number of envs, by default that of the player
        :return: A context with the native vector environment and the adversary in it, which has no attack yet
        """
        environment = with_sigma(self.environment, self.sigma)
        with opened_native(environment, n_envs or self.n_envs) as envs:
            budgets = budgets_of(self.threat, budget, envs.num_envs, self.spread)
            yield insert_vector_adversary(envs, _no_attack, budgets, self.frames.n_stack)

    @contextlib.contextmanager
    def opened_single(
        self, attack: str, settings: dict[str, Any], budget: float, n_envs: int | None = None
    ) -> Iterator[VecEnv]:
        """
        :param attack: Name of the attack
        :param settings: Its arguments
        :param budget: What may be spent, in the threat model
        :param n_envs: Number of envs, by default that of the player
        :return: A context with envs that step one by one, an adversary in each
        """
        attacked = attacked_environment(
            self.environment,
            self.model,
            self.frames,
            sigma=self.sigma,
            budget=budget,
            attack=attack,
            settings=settings,
            threat=self.threat,
            draws=self.draws,
            spread=self.spread,
        )
        with attacked.opened(n_envs or self.n_envs) as env:
            yield env

    def attack(self, name: str) -> Attack:
        """
        :param name: Name of an attack, other than "learned"
        :return: the attack
        :raises InputError: if it cannot attack this policy in this threat model
        """
        return chosen_attack(name, policy_view(self.model.policy), self.threat)

    def view(self) -> AdversaryView:
        """
        :return: what a learned adversary of this policy observes
        """
        limit = self.environment.env_kwargs.get("max_episode_steps", gym.spec(self.environment.env_id).max_episode_steps)
        space = self.frames.space
        norm = Norm.of(self.threat, self.frames.sensor_sigma)
        limit = limit or _STEPS_WITHOUT_LIMIT
        per_step = is_per_step(self.threat)
        return AdversaryView(space.shape, space.dtype == np.uint8, self.sigma or 1.0, limit, norm, per_step)

    def _adversary(self, attack: str, settings: dict[str, Any], budget: float) -> Adversary | LearnedAdversary:
        if attack == LEARNED:
            return LearnedAdversary(self.model, device=self.model.device, **settings)
        step_size = default_step_size(attack, budget, self.frames.space, self.threat)
        channel = self.frames.channel(self.sigma, self.draws)
        return Adversary(
            self.model, attack, settings, self.model.device, self.threat, self.frames.sensor_sigma, channel, step_size
        )

    def layout(self) -> FrameLayout:
        """
        :return: how what the policy observes consists of frames
        """
        observed: Any = self.model.observation_space
        if self.frames.key is not None:
            observed = observed[self.frames.key]
        return FrameLayout.between(self.frames.space, observed, self.frames.n_stack)


def plays_native(environment: EvaluationEnv, frames: AttackedFrames, sigma: float, vec_env: str) -> bool:
    """
    :param environment: The environment, without the adversary
    :param frames: What the adversary sees
    :param sigma: Standard deviation of the noise
    :param vec_env: "native", "dummy", or "auto" for the former where the returns are known to have the same distribution
    :return: whether to play in the native vector environment
    :raises InputError: if that was asked for and there is none
    """
    if vec_env == "dummy":
        return False
    environment = with_sigma(environment, sigma)
    if vec_env == "auto":
        return frames.key is None and has_known_native(environment)
    try:
        if frames.key is not None:
            raise NotNative("its observation is a Dict")
        with opened_native(environment, 1):
            return True
    except NotNative as error:
        raise InputError(f"--vec-env native: {error}: leave it out") from error


def with_sigma(environment: EvaluationEnv, sigma: float) -> EvaluationEnv:
    """
    :param environment: An environment
    :param sigma: Standard deviation of its noise
    :return: the same with this noise; as it is where there is none and should be none
    """
    noise = environment.smoothing_noise()
    if sigma == 0 and noise is None:
        return environment
    if sigma > 0 and noise is not None and noise.sensor_sigma is not None:
        return environment  # each sensor keeps its own
    return environment.with_noise(sigma)


def _no_attack(requests: Any) -> Any:
    raise AssertionError("the adversary was given no attack")
