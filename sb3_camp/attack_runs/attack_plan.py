"""What the command line of ``python -m sb3_camp.attack`` asks for: policy, environment, attack and episodes."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from rl_zoo3.utils import ALGOS

from sb3_camp.attack_names import ALL, LEARNED, ROBUST_SARSA, TRANSFER
from sb3_camp.attack_runs.attack_player import AttackPlayer, plays_native
from sb3_camp.attack_runs.attack_result import AttackSettings
from sb3_camp.attack_runs.attacked_env import attacked_frames
from sb3_camp.attack_runs.critic_training import load_critic
from sb3_camp.attack_runs.spending import spending
from sb3_camp.attack_runs.surrogate import load_surrogate
from sb3_camp.attacks.registry import ATTACKS
from sb3_camp.attacks.robust_sarsa import LearnedCritic
from sb3_camp.errors import InputError
from sb3_camp.evaluation.agents import Agent, NoiseOn, find_agent
from sb3_camp.evaluation.behaviour_checks import N_COPIES, check_behaviour, entries_without_noise
from sb3_camp.evaluation.checkpoint import load_checkpoint
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episode_plan import Chunk, plan_chunks
from sb3_camp.evaluation.zoo_arguments import nearest, versions
from sb3_camp.files import read_bytes, sha256
from sb3_camp.policy_view import PolicyView
from sb3_camp.runs.noise_placement import SmoothingNoise
from sb3_camp.runs.normalization import read_normalization, statistics_beside
from sb3_camp.threat_models import is_per_step
from sb3_camp.wrappers.adversarial_observation import check_steps
from sb3_camp.wrappers.observation_noise import Sigma

_BUDGETS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_PIXEL = 255
# Envs that play at once, one by one and as one array
_N_ENVS, _N_NATIVE_ENVS = 64, 1024
# Settings that an attack takes as arguments, if it has them
_ARGUMENTS = ("objective", "step_size", "multiplier", "q_threshold")


@dataclass(frozen=True)
class AttackPlan:
    """
    :param player: The policy and its environment
    :param settings: How it is attacked
    :param budgets: l2 norms for an episode, ascending
    :param chunks: The episodes at each of them
    :param adversary: File of the trained adversary, for a learned attack
    :param critic: The critic that was learned for the policy, for the attack that needs one
    :param surrogate: The agent whose gradients a transfer attack follows
    """

    player: AttackPlayer
    settings: AttackSettings
    budgets: list[float]
    chunks: list[Chunk]
    adversary: Path | None = None
    critic: LearnedCritic | None = None
    surrogate: PolicyView | None = None

    @property
    def attack_settings(self) -> dict[str, Any]:
        """Arguments of the attack, except those whose default depends on the budget."""
        if self.settings.attack == LEARNED:
            return {"agent": self.adversary, "view": self.player.view(), "statistics": self._statistics()}
        values = {name: getattr(self.settings, name) for name in _ARGUMENTS}
        values.update(critic=self.critic, surrogate=self.surrogate)
        known = self.player.attack(self.settings.attack).arguments
        return {name: value for name, value in values.items() if value is not None and name in known}

    def _statistics(self) -> dict[str, Any] | None:
        """By which the observations of the adversary are normalised: what VecNormalize has left beside it."""
        file = None if self.adversary is None else statistics_beside(self.adversary)
        return None if file is None else read_normalization(file)

    @property
    def units(self) -> list[Chunk]:
        """What is played one by one, and kept if interrupted: all chunks at the first budget, at the second ..."""
        return [chunk for _ in self.budgets for chunk in self.chunks]

    def with_critic(self, file: Path) -> "AttackPlan":
        """
        :param file: A learned critic
        :return: the same with this one
        """
        digest = sha256(read_bytes(file))
        return replace(self, critic=load_critic(file), settings=replace(self.settings, critic_sha256=digest))

    def with_spending(self) -> "AttackPlan":
        """
        :return: the same with a plan for when to spend
        """
        name, spend, seed = self.settings.attack, self.settings.spend, self.settings.seed
        plan = spending(self.player, name, self.attack_settings, self.budgets[-1], spend, seed)
        settings = replace(self.settings, q_threshold=plan.q_threshold, spread=plan.spread)
        return replace(self, settings=settings, player=replace(self.player, spread=plan.spread))

    def by(self, adversary: Path) -> "AttackPlan":
        """
        :param adversary: File of a trained adversary
        :return: the same with this one
        """
        return replace(
            self, adversary=adversary, settings=replace(self.settings, adversary_sha256=sha256(read_bytes(adversary)))
        )


@dataclass(frozen=True)
class Victim:
    """
    :param path: File of the policy
    :param sha256: SHA-256 of its content
    :param player: The policy and its environment
    :param noise: Its smoothing noise
    :param normalization: By which its observations are normalised, None if they are not
    """

    path: Path
    sha256: str
    player: AttackPlayer
    noise: SmoothingNoise
    normalization: dict[str, Any] | None = None


def find_victim(args: argparse.Namespace) -> Victim:
    """
    :param args: Arguments of the command, as :func:`sb3_camp.evaluation.zoo_arguments.parse` returns them
    :return: the policy that they name, in its environment
    :raises InputError: if there is none, or if its episodes depend on each other or do not see the noise
    """
    agent = find_agent(args)
    environment, noise = _noisy_or_not(agent, args.sigma, args.noise_on)
    content = read_bytes(agent.model_path)
    model = load_checkpoint(agent.model_path, ALGOS[args.algo], args.device, environment.spaces, content)
    frames = attacked_frames(environment, model, agent.model_path, args.key)
    _check_behaviour(environment)
    native = plays_native(environment, frames, noise.sigma, args.vec_env)
    n_envs = min(args.n_envs or (_N_NATIVE_ENVS if native else _N_ENVS), args.n_episodes)
    player = AttackPlayer(model, environment, frames, noise.sigma, native, n_envs, not args.stochastic, args.threat, args.eot)
    return Victim(agent.model_path, sha256(content), player, noise, agent.normalization)


def plan_attack(args: argparse.Namespace, victim: Victim, attack: str) -> AttackPlan:
    """
    :param args: Arguments of the command
    :param victim: The policy that they name
    :param attack: Name of the attack
    :return: what is to be played
    :raises InputError: if the attack cannot be used on this policy, or not with these arguments
    """
    player = victim.player
    surrogate = None
    if attack == TRANSFER:
        if args.transfer_from is None:
            raise InputError("--attack transfer needs another agent: name its checkpoint with --transfer-from")
        surrogate = load_surrogate(args.transfer_from, player.model, victim.normalization)
    # Before anything is played, for a suite comes to these last
    if attack == ROBUST_SARSA and args.critic is not None:
        load_critic(args.critic)
    if attack == LEARNED and args.adversary is not None:
        read_bytes(args.adversary)
    spend = args.spend or "early"
    if attack == LEARNED:
        spend = "early"
    elif player.attack(attack).goes_on and not is_per_step(args.threat):
        spend = args.spend or "even"
    settings = AttackSettings(
        env_id=player.environment.env_id,
        env_kwargs=player.environment.env_kwargs,
        env_wrappers=player.environment.wrappers,
        algo=args.algo,
        model=str(victim.path),
        model_sha256=victim.sha256,
        timesteps=player.model.num_timesteps,
        deterministic=player.deterministic,
        sigma=player.sigma,
        clean_keys=sorted(victim.noise.clean_keys),
        attack=attack,
        objective=args.objective,
        step_size=args.step_size,
        multiplier=_multiplier(args, attack),
        q_threshold=args.q_threshold,
        key=player.frames.key,
        seed=args.seed,
        n_episodes=args.n_episodes,
        n_envs=player.n_envs,
        device=str(player.model.device),
        versions=versions(),
        native_vec_env=player.native,
        sensor_sigma=victim.noise.sensor_sigma,
        threat=args.threat,
        eot=0 if attack == LEARNED else args.eot,
        spend=spend,
        transfer_sha256=None if surrogate is None else sha256(read_bytes(args.transfer_from)),
    )
    budgets = _budgets(args, player.frames.space)
    chunks = plan_chunks(args.n_episodes, player.n_envs, args.seed)
    plan = AttackPlan(player, settings, budgets, chunks, surrogate=surrogate)
    for budget in budgets if attack != LEARNED else ():
        check_steps(attack, budget, plan.attack_settings, player.frames.space, args.threat)
    return plan


def check_name(attack: str) -> None:
    """
    :param attack: What ``--attack`` says
    :raises InputError: if there is no such attack
    """
    names = [*ATTACKS, LEARNED, ALL]
    if attack not in names:
        raise InputError(f"--attack: there is no {attack}: {nearest(attack, names)}choose one of {', '.join(names)}")


def _multiplier(args: argparse.Namespace, attack: str) -> float | None:
    if attack == LEARNED:
        return None
    if "multiplier" in ATTACKS[attack].arguments:
        return 2.0 if args.multiplier is None else args.multiplier
    if args.multiplier is not None and args.attack != ALL:
        raise InputError(f"--multiplier is not for {attack}, which has none: leave it out")
    return None


def _budgets(args: argparse.Namespace, space: spaces.Box) -> list[float]:
    """The budgets, or the bounds on each observation, ascending."""
    given = args.epsilon if is_per_step(args.threat) else args.budget
    unit = _PIXEL if space.dtype == np.uint8 else 1
    return [unit * budget for budget in _BUDGETS] if given is None else sorted({abs(size) for size in given})


def _noisy_or_not(agent: Agent, sigma: Sigma | None, noise_on: NoiseOn | None) -> tuple[EvaluationEnv, SmoothingNoise]:
    """The environment of the agent, and the noise that it is to act on: sigma 0 is none."""
    environment = agent.smoothed(sigma, noise_on)
    noise = environment.smoothing_noise() or SmoothingNoise(0.0)
    given = noise.sigma if noise.sensor_sigma is None else noise.sensor_sigma
    if sigma is None or sigma == given:
        return environment, noise
    if not isinstance(sigma, int | float) or (noise.sensor_sigma is not None and sigma != 0):
        raise InputError("the noise of this agent has another sigma, for each sensor: leave out --sigma, or give 0 for none")
    return environment, noise._replace(sigma=float(sigma))


def _check_behaviour(environment: EvaluationEnv) -> None:
    """What an evaluation checks too: the noise reaches the policy, and no episode depends on those before."""
    noise = environment.smoothing_noise()
    with environment.opened(N_COPIES) as env:
        check_behaviour(env, entries_without_noise(noise) if noise else (), noisy=noise is not None and noise.sigma > 0)
