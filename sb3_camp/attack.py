"""
Play episodes of one fixed policy whose observations an adversary perturbs: ``python -m sb3_camp.attack``.

The command writes ``attack.json``, ``attack.csv`` and ``attack.png`` into ``attacks/<attack>_sigma<S>/`` in the run folder (or
beside the model file), and checks them against the certificate of the same policy, if there is one.
"""

import argparse
import math
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rl_zoo3.utils import ALGOS
from tqdm import tqdm

import sb3_camp.zoo
from sb3_camp.attack_runs.adversary_training import train_and_save
from sb3_camp.attack_runs.arguments import attack_budgets, attack_parser, check_numbers
from sb3_camp.attack_runs.attack_files import read_attack, write_attack
from sb3_camp.attack_runs.attack_player import AttackPlayer, plays_native
from sb3_camp.attack_runs.attack_result import AttackResult, AttackSettings, attack_result
from sb3_camp.attack_runs.attacked_env import attacked_frames
from sb3_camp.attack_runs.attacked_episodes import AttackedEpisodes
from sb3_camp.attack_runs.consistency import check_agreement, compare, evaluated_returns, incomparable
from sb3_camp.attack_runs.critic_training import load_critic, save_critic, train_critic
from sb3_camp.attack_runs.interrupted_attack import NOT_COMPARED, read_partial_attack, write_partial_attack
from sb3_camp.attack_runs.spending import spending
from sb3_camp.attacks.registry import LEARNED, ROBUST_SARSA, chosen_attack
from sb3_camp.attacks.robust_sarsa import LearnedCritic
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.rounded_text import exact
from sb3_camp.command_line import exit_status, spelled
from sb3_camp.errors import InputError
from sb3_camp.evaluation.agents import Agent, NoiseOn, find_agent
from sb3_camp.evaluation.checkpoint import load_checkpoint
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episode_plan import Chunk, plan_chunks
from sb3_camp.evaluation.resume import begin
from sb3_camp.evaluation.zoo_arguments import parse, versions
from sb3_camp.files import only_writer, read_bytes, sha256
from sb3_camp.policy_view import policy_view
from sb3_camp.runs.noise_placement import SmoothingNoise
from sb3_camp.runs.policy_id import DECISIVE_POLICY_KEYS
from sb3_camp.runs.scenario import SCENARIO_KEYS
from sb3_camp.threat_models import is_per_step, size_name
from sb3_camp.wrappers.adversarial_observation import check_steps
from sb3_camp.wrappers.observation_noise import Sigma

# Envs that play at once, one by one and as one array
_N_ENVS, _N_NATIVE_ENVS = 64, 1024
# What must be the same for one attack to take the place of another in the default folder
_IDENTITY = (
    *(key for key in SCENARIO_KEYS if key not in ("sensor_sigma", "clean_keys")),
    *DECISIVE_POLICY_KEYS,
    *("attack", "objective", "step_size", "multiplier", "q_threshold", "key", "threat", "eot", "spend"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: Arguments of the command line, those of the process by default
    :return: exit status: 0, 2 for bad input, 3 if the returns contradict the certificate of the policy, 130 if interrupted
    """
    sb3_camp.zoo.register()
    return exit_status("attack", lambda: _attack(parse(attack_parser(), argv)))


@dataclass(frozen=True)
class _Attack:
    player: AttackPlayer
    settings: AttackSettings
    budgets: list[float]
    chunks: list[Chunk]
    adversary: Path | None = None
    critic: LearnedCritic | None = None

    @property
    def attack_settings(self) -> dict[str, Any]:
        """Arguments of the attack, except those whose default depends on the budget."""
        if self.settings.attack == LEARNED:
            return {"agent": self.adversary, "view": self.player.view()}
        names = ("objective", "step_size", "multiplier", "q_threshold")
        values = {name: getattr(self.settings, name) for name in names}
        values["critic"] = self.critic
        known = self.player.attack(self.settings.attack).arguments
        return {name: value for name, value in values.items() if value is not None and name in known}

    @property
    def units(self) -> list[Chunk]:
        """What is played one by one, and kept if interrupted: all chunks at the first budget, at the second ..."""
        return [chunk for _ in self.budgets for chunk in self.chunks]

    def with_critic(self, file: Path) -> "_Attack":
        """The same with this learned critic."""
        digest = sha256(read_bytes(file))
        return replace(self, critic=load_critic(file), settings=replace(self.settings, critic_sha256=digest))

    def planned(self) -> "_Attack":
        """The same with a plan for when to spend."""
        name, spend, seed = self.settings.attack, self.settings.spend, self.settings.seed
        plan = spending(self.player, name, self.attack_settings, self.budgets[-1], spend, seed)
        settings = replace(self.settings, q_threshold=plan.q_threshold, spread=plan.spread)
        return replace(self, settings=settings, player=replace(self.player, spread=plan.spread))

    def by(self, adversary: Path) -> "_Attack":
        """The same with this trained adversary."""
        return replace(
            self, adversary=adversary, settings=replace(self.settings, adversary_sha256=sha256(read_bytes(adversary)))
        )


def _attack(args: argparse.Namespace) -> None:
    check_numbers(args)
    agent = find_agent(args)
    environment, noise = _noisy_or_not(agent, args.sigma, args.noise_on)
    content = read_bytes(agent.model_path)
    model = load_checkpoint(agent.model_path, ALGOS[args.algo], args.device, environment.spaces, content)
    spend = args.spend or "early"
    if args.attack != LEARNED:
        goes_on = chosen_attack(args.attack, policy_view(model.policy), args.threat).goes_on
        spend = args.spend or ("even" if goes_on and not is_per_step(args.threat) else "early")
    frames = attacked_frames(environment, model, agent.model_path, args.key)
    native = plays_native(environment, frames, noise.sigma, args.vec_env)
    n_envs = min(args.n_envs or (_N_NATIVE_ENVS if native else _N_ENVS), args.n_episodes)
    settings = AttackSettings(
        env_id=environment.env_id,
        env_kwargs=environment.env_kwargs,
        env_wrappers=environment.wrappers,
        algo=args.algo,
        model=str(agent.model_path),
        model_sha256=sha256(content),
        timesteps=model.num_timesteps,
        deterministic=not args.stochastic,
        sigma=noise.sigma,
        clean_keys=sorted(noise.clean_keys),
        attack=args.attack,
        objective=args.objective,
        step_size=args.step_size,
        multiplier=2.0 if args.multiplier is None and args.attack not in ("fgsm", LEARNED) else args.multiplier,
        q_threshold=args.q_threshold,
        key=frames.key,
        seed=args.seed,
        n_episodes=args.n_episodes,
        n_envs=n_envs,
        device=str(model.device),
        versions=versions(),
        native_vec_env=native,
        sensor_sigma=noise.sensor_sigma,
        threat=args.threat,
        eot=args.eot,
        spend=spend,
    )
    player = AttackPlayer(
        model, environment, frames, noise.sigma, native, n_envs, settings.deterministic, args.threat, args.eot
    )
    budgets = attack_budgets(args, frames.space)
    attack = _Attack(player, settings, budgets, plan_chunks(args.n_episodes, n_envs, args.seed))
    for budget in attack.budgets if args.attack != LEARNED else ():
        check_steps(args.attack, budget, attack.attack_settings, frames.space, args.threat)
    folder = args.output or agent.model_path.parent / "attacks" / _folder_name(settings)
    file = folder / "attack.json"
    if args.output is None and not args.resume:
        _keep_other_attack(file, settings)
    actions = "sampled" if args.stochastic else "greedy"
    sigma = f"sigma {exact(noise.sigma)}" if noise.sensor_sigma is None else "a sigma for each sensor"
    print(f"Attacking {agent.model_path} with {args.attack} ({args.threat}), {sigma}, {actions} actions")
    hide_progress = not (args.progress or sys.stderr.isatty())
    with only_writer(folder):
        if args.attack == LEARNED:
            attack = attack.by(args.adversary or _trained(attack, args, folder / "adversary.zip", hide_progress))
        if args.attack == ROBUST_SARSA:
            attack = attack.with_critic(args.critic or _learned_critic(attack, args, folder / "critic.npz", hide_progress))
        if args.attack != LEARNED and not is_per_step(args.threat):
            attack = attack.planned()
        _play_and_write(attack, file, args.resume, hide_progress)
    _compare(file, [agent.model_path.parent / "certification", folder])


def _trained(attack: _Attack, args: argparse.Namespace, file: Path, hide_progress: bool) -> Path:
    """The adversary of this folder, trained now unless an interrupted attack is resumed that has one."""
    if not (args.resume and file.exists()):
        if attack.budgets[-1] == 0:
            raise InputError("--attack learned needs a --budget above 0 to train an adversary for")
        if file.exists():
            print(f"Replacing the adversary in {file}: to use it, give --adversary {shlex.quote(str(file))}")
        train_and_save(attack.player, attack.budgets[-1], args.adversary_timesteps, args.seed, file, hide_progress)
    return file


def _learned_critic(attack: _Attack, args: argparse.Namespace, file: Path, hide_progress: bool) -> Path:
    """The critic of this folder, learned now unless an interrupted attack is resumed that has one."""
    if not (args.resume and file.exists()):
        save_critic(train_critic(attack.player, args.seed, hide_progress), file)
        print(f"Written: {file}")
    return file


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


def _folder_name(settings: AttackSettings) -> str:
    threat = f"_{settings.threat}" if is_per_step(settings.threat) else ""
    sigma = "s" if settings.sensor_sigma is not None and settings.sigma > 0 else exact(settings.sigma)
    return f"{settings.attack}{threat}_sigma{sigma}"


def _keep_other_attack(file: Path, settings: AttackSettings) -> None:
    """Refuse to replace, unasked, an attack on another policy, or one that attacks in another way."""
    if not file.exists():
        return
    way_out = f"give another folder with -o, or replace it with -o {shlex.quote(str(file.parent))}"
    # Which threshold a pilot finds depends on the largest budget
    names = [name for name in _IDENTITY if name != "q_threshold" or settings.spend != "pilot"]
    try:
        difference = read_attack(file).settings.difference(settings, names)
    except InputError as error:
        raise InputError(f"{error}: {way_out}") from None
    if difference is not None:
        raise InputError(f"{file}: made with {difference}: {way_out}")


def _play_and_write(attack: _Attack, file: Path, resume: bool, hide_progress: bool) -> None:
    partial = file.with_name("attack.partial.npz")
    settings = {**attack.settings.as_json(), "budgets": attack.budgets}
    n_episodes = len(attack.budgets) * attack.settings.n_episodes

    def read_played() -> tuple[tuple[AttackedEpisodes, int], str]:
        played, n_played = read_partial_attack(partial, settings, attack.units)
        return (played, n_played), f"{played.flips.size} of {n_episodes} episodes"

    is_finished, played = begin(
        "attack", file, partial, resume, read_played, lambda: f"all {_n_finished_budgets(file, attack)} budgets"
    )
    if is_finished:
        return
    try:
        episodes = _play(attack, played or (AttackedEpisodes.none(), 0), partial, settings, hide_progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_what_is_left(attack, partial)) from None
    result = attack_result(attack.settings, attack.budgets, episodes)
    files = write_attack(result, episodes, file.parent)
    partial.unlink(missing_ok=True)
    _print_report(result)
    print("Written: " + ", ".join(map(str, files)))


def _what_is_left(attack: _Attack, partial: Path) -> str:
    if partial.exists():
        return "the same command with --resume continues"
    first = attack.chunks[0].n_episodes
    return f"nothing is kept, as the first {first} episodes were not finished (smaller -n or --n-envs: sooner)"


def _play(
    attack: _Attack,
    begun: tuple[AttackedEpisodes, int],
    partial: Path,
    settings: dict[str, Any],
    hide_progress: bool,
) -> AttackedEpisodes:
    played, n_played = begun
    n_chunks = len(attack.chunks)
    n_total = len(attack.budgets) * attack.settings.n_episodes
    start, n_steps = time.perf_counter(), 0
    with tqdm(total=n_total, initial=played.flips.size, unit="episode", mininterval=1, disable=hide_progress) as bar:
        for index, budget in enumerate(attack.budgets):
            left = attack.chunks[max(0, n_played - index * n_chunks) :]
            if not left:
                continue
            bar.set_description(f"budget {exact(budget)}")
            with attack.player.opened(attack.settings.attack, attack.attack_settings, budget) as play:
                for chunk in left:
                    new = play(chunk, bar.update)
                    played = played.followed_by(new)
                    n_steps += int(new.episodes.lengths.sum())
                    n_played += 1
                    write_partial_attack(partial, settings, played, n_played)
    print(f"Played {n_steps} steps ({n_steps / (time.perf_counter() - start):.0f} steps/s)")
    return played


def _n_finished_budgets(file: Path, attack: _Attack) -> int:
    finished = read_attack(file)
    names = [one.name for one in fields(AttackSettings) if one.name not in NOT_COMPARED]
    difference = finished.settings.difference(attack.settings, names)
    budgets = [one.budget for one in finished.budgets]
    if difference is None and budgets != attack.budgets:
        difference = f"budgets {budgets}, not {attack.budgets}"
    if difference is not None:
        raise InputError(
            f"{file}: cannot be resumed, it was made with {difference}: give the same arguments, another --output, or leave "
            "out --resume to start over"
        )
    return len(budgets)


def _print_report(result: AttackResult) -> None:
    interval_head = f"{result.confidence:.0%} interval"
    print(f"{size_name(result.settings.threat):>10}{'mean return':>14}{interval_head:>24}{'spent':>10}{'flips':>10}")
    for one in result.budgets:
        interval = one.confidence_interval
        text = "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
        print(f"{one.budget:>10.6g}{one.mean_return:>14.2f}{text:>24}{one.mean_spent:>10.4g}{one.mean_flips:>10.2f}")
    if any(one.confidence_interval is None for one in result.budgets):
        n = result.settings.n_episodes
        rare = -math.expm1(math.log1p(-result.confidence) / n)
        print(
            f"-: all {n} returns are the same, which bounds no mean; with {result.confidence:.0%} confidence, another return "
            f"has a probability below {rare:.2g}"
        )


def _compare(file: Path, folders: Sequence[Path]) -> None:
    """Look for the certificate of the policy, and whether the attack contradicts it."""
    attack = read_attack(file)
    for certificate_file in dict.fromkeys(folder / "certificate.json" for folder in folders):
        if not certificate_file.is_file():
            continue
        try:
            certificate = read_certificate(certificate_file)
        except InputError as error:
            print(f"Not compared: {error}")
            continue
        reason = incomparable(attack, certificate)
        if reason is not None:
            print(f"Not compared with {certificate_file}: {reason}")
            continue
        comparison = compare(attack, certificate, evaluated_returns(certificate, certificate_file))
        for note in comparison.notes():
            print(f"{certificate_file}: {note}")
        check_agreement([(str(file), comparison)])
        above = [exact(one.budget) for one in comparison.budgets if one.verdict == "above"]
        if above:
            print(f"Not below {certificate_file} at the budgets {', '.join(above)}")
        print(f"Draw both: {spelled('plot')} both {shlex.quote(str(certificate_file))} {shlex.quote(str(file))}")


if __name__ == "__main__":
    sys.exit(main())
