"""From Python: episodes that a certificate may stand on, with all the checks of ``python -m sb3_camp.evaluate``."""

from stable_baselines3.common.type_aliases import PolicyPredictor

from sb3_camp.certification.independence import check_independent
from sb3_camp.errors import InputError
from sb3_camp.evaluation.behaviour_checks import N_COPIES, check_behaviour
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episode_plan import plan_chunks
from sb3_camp.evaluation.episodes import Episodes, check_finite, joined, play_episodes
from sb3_camp.evaluation.independent_actions import fixed_policy


def smoothed_episodes(
    model: PolicyPredictor,
    environment: EvaluationEnv,
    n_episodes: int = 10_000,
    *,
    seed: int = 0,
    n_envs: int = 64,
    deterministic: bool = True,
) -> Episodes:
    """
    Play independent episodes of one fixed policy on noisy observations, and check that they are that.

    :param model: The policy, anything with SB3's ``predict``
    :param environment: The environment with its smoothing noise, see :meth:`EvaluationEnv.with_noise`
    :param n_episodes: Number of episodes
    :param seed: Seeds the episodes and the random choices of the policy, non-negative
    :param n_envs: Number of envs that play at once
    :param deterministic: Whether the policy is to act without random choices
    :return: the episodes; their returns are what :func:`sb3_camp.certified_return` takes, with the sigma of the noise
    :raises InputError: if there is no noise, if the policy may see past it, if episodes depend on each other, if the policy
        changes while it plays, or if returns are not finite
    """
    noise = environment.smoothing_noise()
    if noise is None or noise.sigma == 0:
        raise InputError(f"{environment.env_id} has no smoothing noise on its observations: add it with with_noise(sigma)")
    with environment.opened(N_COPIES) as env:
        check_behaviour(env, noise.clean_keys)
    n_envs = min(n_envs, n_episodes)
    with environment.opened(n_envs) as env, fixed_policy(model):
        played = [
            play_episodes(model, env, chunk.n_episodes, seed=chunk.seed, deterministic=deterministic)
            for chunk in plan_chunks(n_episodes, n_envs, seed)
        ]
    episodes = joined(played)
    check_finite(episodes)
    check_independent(episodes.returns, episodes.lengths, n_envs)
    return episodes
