"""
A teacher for CAMP on the CartPole tasks: the linear policy that the cross-entropy search of ``linear_search.py`` finds.

Without memory hardly anything is better on noisy observations. Leaves a run folder of the zoo, as ``--algo ars`` would:

    python zoo_scripts/linear_teacher.py --env camp/CartPole1-v0 --env-kwargs sigma:0.4 -f logs --seed 0
    python -m sb3_camp.evaluate --algo ars --env camp/CartPole1-v0 -f logs -n 10000
"""

import argparse
import sys

import gymnasium as gym
import taught_run
from linear_search import CANDIDATES, EPISODES, ROUNDS, TASKS, linear_model, search

from sb3_camp.command_line import exit_status
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.native import step_limit

_N_EPISODES = ROUNDS * CANDIDATES * EPISODES


def teach(args: argparse.Namespace) -> None:
    """Search for the policy, and write its run folder."""
    kwargs = dict(args.env_kwargs)
    with taught_run.run_folder(args, "ars") as folder:
        env = taught_run.made(args.env, lambda: gym.make(args.env, **kwargs))
        environment = EvaluationEnv(args.env, env_kwargs=kwargs)
        model = linear_model(env, search(environment, CANDIDATES, args.seed))
        n_timesteps = _N_EPISODES * int(step_limit(environment))  # at most: episodes may end before the limit
        taught_run.save(model, folder, args, {"policy": "LinearPolicy"}, n_timesteps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    taught_run.add_options(parser, TASKS, ("sigma", "n_stack"))
    args = parser.parse_args()
    return exit_status("linear_teacher", lambda: teach(args))


if __name__ == "__main__":
    sys.exit(main())
