"""Playing, checking and writing the evaluation that the command line of ``python -m sb3_camp.evaluate`` asks for."""

import argparse
import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from rl_zoo3.utils import ALGOS
from stable_baselines3.common.base_class import BaseAlgorithm
from tqdm import tqdm

from sb3_camp.certification.independence import check_independent
from sb3_camp.command_line import spelled
from sb3_camp.errors import InputError
from sb3_camp.evaluation.agents import Agent, NoiseOn, find_agent
from sb3_camp.evaluation.behaviour_checks import N_COPIES, check_behaviour, entries_without_noise
from sb3_camp.evaluation.checkpoint import check_spaces, load_checkpoint
from sb3_camp.evaluation.env_versions import env_versions
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episode_plan import Chunk, n_seeds, plan_chunks
from sb3_camp.evaluation.episodes import Episodes, check_finite, joined, play_episodes
from sb3_camp.evaluation.evaluation_file import (
    Settings,
    as_json,
    check_finished,
    read_more,
    read_partial,
    write_evaluation,
    write_partial,
)
from sb3_camp.evaluation.independent_actions import fixed_policy
from sb3_camp.evaluation.native import NotNative, has_known_native, opened_native, step_limit
from sb3_camp.evaluation.perturbed_numbers import perturbed_numbers
from sb3_camp.evaluation.q_gaps import QGaps, q_gap_statistics
from sb3_camp.evaluation.recorded_keys import check_recorded, describe_key, print_recorded
from sb3_camp.evaluation.resume import begin
from sb3_camp.evaluation.sigma_argument import ShareOfDeviation, measured_sigma, parse_sigma
from sb3_camp.evaluation.sigma_units import unit_warnings
from sb3_camp.evaluation.stopping import Stopping, find_stopping
from sb3_camp.evaluation.vector_episodes import play_vector_episodes
from sb3_camp.evaluation.zoo_arguments import N_ENVS, N_EPISODES, N_NATIVE_ENVS, versions
from sb3_camp.files import only_writer, read_bytes, sha256
from sb3_camp.runs.noise_placement import SmoothingNoise
from sb3_camp.runs.recorded_key import parse_keys
from sb3_camp.tasks.registry import n_native_episodes
from sb3_camp.wrappers.observation_noise import Sigma, plain_sigma

_Play = Callable[..., Episodes]


@dataclass(frozen=True)
class _Evaluation:
    model: BaseAlgorithm
    model_path: Path
    environment: EvaluationEnv
    settings: Settings
    chunks: list[Chunk]
    pixels: bool
    stopping: Stopping | None = None
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
            if self.settings["native_vec_env"]:
                envs = stack.enter_context(opened_native(self.environment, self.n_envs))
                limit, keys = step_limit(self.environment), self.environment.recorded
                play = partial(play_vector_episodes, self.model, envs, step_limit=limit, keys=keys)
            else:
                play = partial(play_episodes, self.model, env)
            yield partial(self._play_chunk, play)

    def _play_chunk(self, play: _Play, chunk: Chunk, on_episode: Callable[[int], object]) -> Episodes:
        with fixed_policy(self.model):
            return play(
                chunk.n_episodes,
                seed=chunk.seed,
                deterministic=bool(self.settings["deterministic"]),
                on_episode=on_episode,
                on_step=None if self.q_gaps is None else self.q_gaps.add,
            )


def run_evaluation(args: argparse.Namespace) -> None:
    """
    :param args: Arguments of the command, as :func:`sb3_camp.evaluation.zoo_arguments.parse` returns them
    :raises InputError: if they cannot be used, or if the episodes could not carry a certificate
    """
    sigma = parse_sigma(args.sigma)
    agent = find_agent(args, "subproc" if args.vec_env == "subproc" else "dummy")
    model_path = agent.model_path
    content = read_bytes(model_path)
    model = load_checkpoint(model_path, ALGOS[args.algo], args.device, agent.smoothed(None, None).spaces, content)
    if isinstance(sigma, ShareOfDeviation):
        sigma = measured_sigma(sigma.share, agent, model, args.seed, on_normalized=args.noise_on == "normalized")
    environment, noise = _smoothed(agent, sigma, args.noise_on)
    environment = replace(environment, recorded=parse_keys(args.record))
    native = _plays_native(environment, args.vec_env)
    with environment.opened(N_COPIES) as env:
        check_spaces(model, env, model_path)
        check_behaviour(env, entries_without_noise(noise))
    if args.num_threads is None and not _observes_images(model.observation_space):
        th.set_num_threads(1)  # small networks lose more by waiting for other threads than they gain
    versions_of_env = env_versions(environment)
    stopping = find_stopping(args, environment, versions_of_env, noise.sigma)
    n_episodes = _n_episodes(args, environment, native)
    n_envs = min(args.n_envs or _n_envs(native, args.vec_env, _observes_images(model.observation_space)), n_episodes)
    chunks = plan_chunks(n_episodes, n_envs, args.seed, () if stopping is None else stopping.numbers)
    settings: Settings = {
        "model_sha256": sha256(content),
        "algo": args.algo,
        "env_id": environment.env_id,
        "env_kwargs": as_json(environment.env_kwargs),
        "env_wrappers": as_json(environment.wrappers),
        "env_versions": as_json(versions_of_env),
        "sigma": noise.sigma,
        "clean_keys": json.dumps(noise.clean_keys),
        "seed": args.seed,
        "first_env_seed": chunks[0].seed,
        "last_env_seed": chunks[-1].seed + n_seeds(chunks[-1].n_episodes, n_envs) - 1,
        "deterministic": not args.stochastic,
        "native_vec_env": native,
        "n_episodes": n_episodes,
        "n_envs": n_envs,
        "device": str(model.device),
    }
    if noise.sensor_sigma is not None:
        settings["sensor_sigma"] = as_json(noise.sensor_sigma)
    if stopping is not None:
        settings |= stopping.settings
    if environment.recorded:
        settings["record"] = json.dumps(list(map(str, environment.recorded)))
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
    print(f"Episodes: {n_episodes}" if stopping is None else stopping.announcement)
    if agent.statistics is not None and agent.normalization is not None:
        side = "on normalized" if environment.noise_is_on_normalized() else "on raw"
        print(f"Observations are normalised by {agent.statistics}, frozen; the noise is {side} observations")
    if environment.recorded:
        print(f"Recording of each episode: {', '.join(map(describe_key, environment.recorded))}")
    if noise.clean_keys:
        print(f"Without noise, so a certificate will assume that no adversary touches it: {', '.join(noise.clean_keys)}")
    for warning in unit_warnings(model.observation_space, noise):
        print(f"evaluate: warning: {warning}", file=sys.stderr)
    hide_progress = not (args.progress or sys.stderr.isatty())
    evaluation = _Evaluation(model, model_path, environment, settings, chunks, _are_pixels(model, noise), stopping, q_gaps)
    with only_writer(file.parent):
        _play_and_write(evaluation, file, args.resume, hide_progress)
    print(f"Certify it: {spelled('certify')} {shlex.quote(str(file))}")


def _play_and_write(evaluation: _Evaluation, file: Path, resume: bool, hide_progress: bool) -> None:
    settings, chunks, q_gaps = evaluation.settings, evaluation.chunks, evaluation.q_gaps
    stopping = evaluation.stopping
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
    episodes, n_played_chunks = played or (Episodes.none(len(evaluation.environment.recorded)), 0)

    start, n_steps = time.perf_counter(), 0
    with (
        evaluation.player() as play,
        tqdm(total=n_episodes, initial=episodes.returns.size, unit="episode", mininterval=1, disable=hide_progress) as bar,
    ):
        for n_chunks, chunk in enumerate(chunks[n_played_chunks:], start=n_played_chunks + 1):
            if stopping is not None and stopping.is_met(episodes.returns):
                break
            new = play(chunk, lambda _: bar.update())
            check_finite(new)
            if stopping is not None:
                stopping.check_lowest(new.returns)
            episodes = joined([episodes, new])
            check_recorded(evaluation.environment, episodes)
            n_steps += int(new.lengths.sum())
            more = {} if q_gaps is None else {"q_gaps": q_gaps.values()}
            write_partial(partial, settings, episodes, n_chunks, **more)
        else:
            if stopping is not None:
                stopping.is_met(episodes.returns)  # for what it prints: this is the last look
    speed = n_steps / (time.perf_counter() - start)
    looks = () if stopping is None else stopping.numbers
    check_independent(episodes.returns, episodes.lengths, evaluation.n_envs, looks=looks)
    statistics = {} if q_gaps is None else q_gap_statistics(q_gaps.values())
    write_evaluation(
        file,
        {**settings, "n_episodes": episodes.returns.size},
        episodes,
        timesteps=evaluation.model.num_timesteps,
        model=str(evaluation.model_path),
        versions=as_json(versions()),
        pixels=evaluation.pixels,
        **perturbed_numbers(evaluation.environment),
        **statistics,
    )
    partial.unlink()
    returns = episodes.returns
    print(f"Return: {returns.mean():.2f} +/- {returns.std():.2f} over {returns.size} episodes ({speed:.0f} steps/s)")
    print_recorded(evaluation.environment.recorded, episodes)
    if q_gaps is not None:
        _report_q_gap(statistics)
    print(f"Wrote {file}")


def _n_episodes(args: argparse.Namespace, environment: EvaluationEnv, native: bool) -> int:
    """How many episodes are played, at most."""
    if args.until is not None:
        return int(args.max_episodes)
    by_default = n_native_episodes(environment.env_id) if native else None
    return args.n_episodes or by_default or N_EPISODES


def _n_envs(native: bool, vec_env: str, observes_images: bool) -> int:
    """How many envs play at once by default. Each process takes a core, and its own memory; so does each game."""
    if native and not observes_images:
        return N_NATIVE_ENVS
    if vec_env != "subproc":
        return N_ENVS
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _plays_native(environment: EvaluationEnv, vec_env: str) -> bool:
    """Whether to play in the native vector environment of Gymnasium."""
    if vec_env != "native":
        return vec_env == "auto" and has_known_native(environment)
    try:
        with opened_native(environment, 1):
            return True
    except NotNative as error:
        raise InputError(f"--vec-env native: {error}: leave it out") from error


def _are_pixels(model: BaseAlgorithm, noise: SmoothingNoise) -> bool:
    """Whether all that has noise are pixel values, so that sigma is in their units."""
    space = model.observation_space
    entries = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    return all(entry.dtype == np.uint8 for key, entry in entries.items() if key not in entries_without_noise(noise))


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
