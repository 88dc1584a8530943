"""Vector environments with noise."""

from sb3_camp.evaluation import EvaluationEnv

NOISE = "sb3_camp.wrappers.NoisyObservationWrapper"


TASKS = ["CartPole-v1", "camp/CartPole1-v0", "camp/CartPole5-v0"]


def noisy(env_id, sigma, **kwargs):
    if env_id in TASKS[1:]:
        return EvaluationEnv(env_id, env_kwargs={"sigma": sigma, **kwargs})
    return EvaluationEnv(env_id, env_kwargs=kwargs, wrappers={"env_wrapper": [{NOISE: {"sigma": sigma}}]})
