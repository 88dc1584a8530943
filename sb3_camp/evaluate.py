"""
Play episodes of one fixed policy on noisy observations, for a certificate: ``python -m sb3_camp.evaluate``.

The command writes ``certification/evaluations.npz`` in the run folder (or beside the model file), in the zoo's format, with
all that ``python -m sb3_camp.certify`` needs to know.
"""

import argparse
import contextlib
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from rl_zoo3.utils import ALGOS
from stable_baselines3.common.base_class import BaseAlgorithm
from tqdm import tqdm

import sb3_camp.zoo
from sb3_camp.command_line import exit_status, invocation
from sb3_camp.errors import InputError
from sb3_camp.evaluation.agents import Agent, NoiseOn, find_agent
from sb3_camp.evaluation.checkpoint import check_spaces, load_checkpoint, sha256
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episode_plan import Chunk, n_seeds, plan_chunks
from sb3_camp.evaluation.episodes import Episodes, play_episodes
from sb3_camp.evaluation.evaluation_file import (
    Settings,
    as_json,
    check_finished,
    read_more,
    read_partial,
    write_evaluation,
    write_partial,
)
from sb3_camp.evaluation.native import NotNative, has_known_native, opened_native, step_limit
from sb3_camp.evaluation.q_gaps import QGaps, q_gap_statistics
from sb3_camp.evaluation.resume import begin
from sb3_camp.evaluation.sigma_argument import HELP as SIGMA_HELP
from sb3_camp.evaluation.sigma_argument import ShareOfDeviation, measured_sigma, parse_sigma
from sb3_camp.evaluation.vector_episodes import play_vector_episodes
from sb3_camp.evaluation.zoo_arguments import add_zoo_arguments, parse, versions
from sb3_camp.runs.noise_placement import SmoothingNoise
from sb3_camp.wrappers.observation_noise import Sigma, plain_sigma

# Envs that play at once: the fastest measured, see benchmarks/evaluation_speed.py
_N_ENVS, _N_NATIVE_ENVS = 64, 1024

_Play = Callable[..., Episodes]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evaluate",
        usage=f"{invocation('evaluate')} --algo ALGO --env ENV [-f FOLDER | --model PATH --sigma S] [options]",
        description="Play exactly N independent episodes of one fixed policy on noisy observations, for a certificate.",
    )
    add_zoo_arguments(
        parser,
        n_episodes=10_000,
        n_episodes_help="number of episodes",
        output_help="folder for the results (default: certification/ beside the model)",
        n_envs=None,
        n_envs_help=f"number of envs that play at once (default: {_N_ENVS}, native: {_N_NATIVE_ENVS})",
        num_threads=None,
        num_threads_help="number of threads for PyTorch (-1: its default; default: 1, or PyTorch's for images)",
    )
    parser.add_argument(
        "--sigma",
        help=SIGMA_HELP,
        metavar="S",
        nargs="+",
    )
    parser.add_argument(
        "--vec-env",
        help="how the envs step: dummy one by one, subproc in a process each, native as one array, where the task has "
        "a vector environment of its own in Gymnasium; auto (the default): native for CartPole in all its forms, else dummy",
        type=str,
        default="auto",
        choices=["auto", "native", "dummy", "subproc"],
    )
    parser.add_argument(
        "--q-gap",
        help="also store minimum, mean and quantiles of the gap between the two highest action scores over all steps",
        action="store_true",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: Arguments of the command line, those of the process by default
    :return: exit status: 0, 2 for bad input, 130 if interrupted
    """
    sb3_camp.zoo.register()
    return exit_status(
        "evaluate", lambda: _evaluate(parse(_parser(), argv)), interrupted="the same command with --resume continues"
    )


@dataclass(frozen=True)
class _Evaluation:
    model: BaseAlgorithm
    model_path: Path
    environment: EvaluationEnv
    settings: Settings
    chunks: list[Chunk]
    q_gaps: QGaps | None = None

    @property
    def n_envs(self) -> int:
        return int(self.settings["n_envs"])

    @contextlib.contextmanager
    def player(self) -> Iterator[_Play]:
        """A context with what plays a chunk, in envs that are closed at its end."""
        play: _Play
        with contextlib.ExitStack() as stack:
            env = stack.enter_context(self.environment.opened(1 if self.settings["native_vec_env"] else self.n_envs))
            check_spaces(self.model, env, self.model_path)
            if self.settings["native_vec_env"]:  # it has the same spaces
                envs = stack.enter_context(opened_native(self.environment, self.n_envs))
                play = partial(play_vector_episodes, self.model, envs, step_limit=step_limit(self.environment))
            else:
                play = partial(play_episodes, self.model, env)
            yield partial(self._play_chunk, play)

    def _play_chunk(self, play: _Play, chunk: Chunk, on_episode: Callable[[int], object]) -> Episodes:
        return play(
            chunk.n_episodes,
            seed=chunk.seed,
            deterministic=bool(self.settings["deterministic"]),
            on_episode=on_episode,
            on_step=None if self.q_gaps is None else self.q_gaps.add,
        )


def _evaluate(args: argparse.Namespace) -> None:
    sigma = parse_sigma(args.sigma)
    agent = find_agent(args, "subproc" if args.vec_env == "subproc" else "dummy")
    model_path = agent.model_path
    model = load_checkpoint(model_path, ALGOS[args.algo], args.device, agent.smoothed(None, None).spaces)
    if isinstance(sigma, ShareOfDeviation):
        on_normalized = args.noise_on == "normalized"
        sigma = sigma.share if on_normalized else measured_sigma(sigma.share, agent, model, args.seed)
    environment, noise = _smoothed(agent, sigma, args.noise_on)
    if args.num_threads is None and not _observes_images(model.observation_space):
        th.set_num_threads(1)  # small networks lose more by waiting for other threads than they gain
    native = _plays_native(environment, args.vec_env)
    n_envs = min(args.n_envs or (_N_NATIVE_ENVS if native else _N_ENVS), args.n_episodes)
    chunks = plan_chunks(args.n_episodes, n_envs, args.seed)
    settings: Settings = {
        "model_sha256": sha256(model_path),
        "algo": args.algo,
        "env_id": environment.env_id,
        "env_kwargs": as_json(environment.env_kwargs),
        "env_wrappers": as_json(environment.wrappers),
        "sigma": noise.sigma,
        "clean_keys": json.dumps(noise.clean_keys),
        "seed": args.seed,
        "first_env_seed": chunks[0].seed,
        "last_env_seed": chunks[-1].seed + n_seeds(chunks[-1].n_episodes, n_envs) - 1,
        "deterministic": not args.stochastic,
        "native_vec_env": native,
        "n_episodes": args.n_episodes,
        "n_envs": n_envs,
        "device": str(model.device),
    }
    if noise.sensor_sigma is not None:
        settings["sensor_sigma"] = as_json(noise.sensor_sigma)
    if agent.trained_env_id is not None:
        settings["trained_env_id"] = agent.trained_env_id
    q_gaps = None
    if args.q_gap:
        q_gaps = QGaps(model.policy)
        settings["q_gap"] = True
    file = (args.output or model_path.parent / "certification") / "evaluations.npz"
    actions = "stochastic" if args.stochastic else "deterministic"
    kind = "native " if native else ""
    shown = f"{noise.sigma:g}" if noise.sensor_sigma is None else as_json(noise.sensor_sigma)
    print(f"Evaluating {model_path} with sigma {shown}, {actions} actions, in {n_envs} {kind}envs")
    if agent.statistics is not None and agent.normalization is not None:
        side = "on normalized" if environment.noise_is_on_normalized() else "on raw"
        print(f"Observations are normalised by {agent.statistics}, frozen; the noise is {side} observations")
    if noise.clean_keys:
        print(f"Without noise, so a certificate will assume that no adversary touches it: {', '.join(noise.clean_keys)}")
    hide_progress = not (args.progress or sys.stderr.isatty())
    _play_and_write(_Evaluation(model, model_path, environment, settings, chunks, q_gaps), file, args.resume, hide_progress)
    print(f"Certify it: python -m sb3_camp.certify {shlex.quote(str(file))}")


def _play_and_write(evaluation: _Evaluation, file: Path, resume: bool, hide_progress: bool) -> None:
    settings, chunks, q_gaps = evaluation.settings, evaluation.chunks, evaluation.q_gaps
    n_episodes = int(settings["n_episodes"])
    partial = file.with_name("evaluations.partial.npz")

    def read_played() -> tuple[tuple[Episodes, int], str]:
        episodes, n_chunks = read_partial(partial, settings, chunks)
        if q_gaps is not None:
            q_gaps.extend(read_more(partial, "q_gaps"))
        return (episodes, n_chunks), f"{episodes.returns.size} of {n_episodes} episodes"

    is_finished, played = begin(
        "evaluation", file, partial, resume, read_played, lambda: f"all {check_finished(file, settings)} episodes"
    )
    if is_finished:
        return
    episodes, n_played_chunks = played or (Episodes(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0)), 0)

    start, n_steps = time.perf_counter(), 0
    with (
        evaluation.player() as play,
        tqdm(total=n_episodes, initial=episodes.returns.size, unit="episode", mininterval=1, disable=hide_progress) as bar,
    ):
        for n_chunks, chunk in enumerate(chunks[n_played_chunks:], start=n_played_chunks + 1):
            new = play(chunk, lambda _: bar.update())
            episodes = Episodes(*(np.concatenate(pair) for pair in zip(episodes, new, strict=True)))
            n_steps += int(new.lengths.sum())
            more = {} if q_gaps is None else {"q_gaps": q_gaps.values()}
            write_partial(partial, settings, episodes, n_chunks, **more)
    speed = n_steps / (time.perf_counter() - start)
    statistics = {} if q_gaps is None else q_gap_statistics(q_gaps.values())
    write_evaluation(
        file,
        settings,
        episodes,
        timesteps=evaluation.model.num_timesteps,
        model=str(evaluation.model_path),
        versions=as_json(versions()),
        **statistics,
    )
    partial.unlink()
    returns = episodes.returns
    print(f"Return: {returns.mean():.2f} +/- {returns.std():.2f} over {returns.size} episodes ({speed:.0f} steps/s)")
    if q_gaps is not None:
        _report_q_gap(statistics)
    print(f"Wrote {file}")


def _plays_native(environment: EvaluationEnv, vec_env: str) -> bool:
    """Whether to play in the native vector environment of Gymnasium."""
    if vec_env != "native":
        return vec_env == "auto" and has_known_native(environment)
    try:
        with opened_native(environment, 1):
            return True
    except NotNative as error:
        raise InputError(f"--vec-env native: {error}: leave it out") from error


def _observes_images(space: spaces.Space) -> bool:
    entries = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    return any(len(entry.shape or ()) == 3 for entry in entries)


def _report_q_gap(statistics: dict[str, Any]) -> None:
    quantiles = zip(statistics["q_gap_levels"], statistics["q_gap_quantiles"], strict=True)
    print(
        f"Q-gap over {statistics['q_gap_steps']} steps: minimum {statistics['q_gap_min']:.3g}, "
        f"mean {statistics['q_gap_mean']:.3g}, quantiles " + ", ".join(f"{level:g}: {gap:.3g}" for level, gap in quantiles)
    )


def _smoothed(agent: Agent, sigma: Sigma | None, noise_on: NoiseOn | None) -> tuple[EvaluationEnv, SmoothingNoise]:
    """The environment of the agent with one smoothing noise, and that noise."""
    environment = agent.smoothed(sigma, noise_on)
    noise = environment.smoothing_noise()
    if noise is None and sigma is None:
        raise InputError(
            f"{environment.env_id} has no smoothing noise on its observations, so there is nothing to certify: give --sigma"
        )
    if noise is None or noise.sigma == 0:
        raise InputError("the smoothing noise of the environment has sigma 0, so there is nothing to certify")
    own = noise.sigma if noise.sensor_sigma is None else noise.sensor_sigma
    if sigma is not None and plain_sigma(sigma) != own:
        raise InputError(f"--sigma contradicts the environment, whose noise has sigma {as_json(own)}: leave it out")
    return environment, noise


if __name__ == "__main__":
    sys.exit(main())
