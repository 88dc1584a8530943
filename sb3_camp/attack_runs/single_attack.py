"""Playing one attack, writing what came of it, and comparing it with the certificate of the policy."""

import argparse
import math
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sb3_camp.attack_names import LEARNED, ROBUST_SARSA
from sb3_camp.attack_runs.adversary_training import train_and_save
from sb3_camp.attack_runs.attack_files import read_attack, write_attack
from sb3_camp.attack_runs.attack_plan import AttackPlan
from sb3_camp.attack_runs.attack_result import AttackResult, AttackSettings, attack_result
from sb3_camp.attack_runs.attacked_episodes import AttackedEpisodes
from sb3_camp.attack_runs.consistency import check_agreement, compare, evaluated_returns, incomparable
from sb3_camp.attack_runs.critic_training import save_critic, train_critic
from sb3_camp.attack_runs.interrupted_attack import NOT_COMPARED, read_partial_attack, write_partial_attack
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.rounded_text import exact
from sb3_camp.command_line import spelled
from sb3_camp.errors import InputError
from sb3_camp.evaluation.resume import begin
from sb3_camp.files import json_writer, only_writer, read_bytes, read_json, sha256, write_files
from sb3_camp.runs.policy_id import DECISIVE_POLICY_KEYS
from sb3_camp.runs.scenario import SCENARIO_KEYS
from sb3_camp.threat_models import is_per_step, size_name

_SCENARIO = tuple(key for key in SCENARIO_KEYS if key not in ("sensor_sigma", "clean_keys"))
# What must be the same for one attack to take the place of another in the default folder
_IDENTITY = (
    *_SCENARIO,
    *DECISIVE_POLICY_KEYS,
    *("attack", "objective", "step_size", "multiplier", "q_threshold", "key", "threat", "eot", "spend"),
    "transfer_sha256",
)


def default_folder(plan: AttackPlan, among: Path | None = None) -> Path:
    """
    :param plan: An attack
    :param among: Folder of all attacks on the policy, by default ``attacks`` beside it
    :return: the folder of its results
    """
    among = Path(plan.settings.model).parent / "attacks" if among is None else among
    return among / folder_name(plan.settings)


def folder_name(settings: AttackSettings) -> str:
    """
    :param settings: Those of an attack
    :return: name of the folder of its results
    """
    threat = f"_{settings.threat}" if is_per_step(settings.threat) else ""
    sigma = "s" if settings.sensor_sigma is not None and settings.sigma > 0 else exact(settings.sigma)
    return f"{settings.attack}{threat}_sigma{sigma}"


def attack_into(folder: Path, plan: AttackPlan, args: argparse.Namespace) -> Path:
    """
    Play an attack, for the learned one after its training, and write what came of it.

    :param folder: Where to
    :param plan: The attack
    :param args: Arguments of the command
    :return: the ``attack.json``
    :raises InputError: if the folder holds another attack that nobody has said to replace
    """
    settings, file = plan.settings, folder / "attack.json"
    if args.output is None and not args.resume:
        _keep_other_attack(file, settings)
    actions = "greedy" if settings.deterministic else "sampled"
    sigma = f"sigma {exact(settings.sigma)}" if settings.sensor_sigma is None else "a sigma for each sensor"
    print(f"Attacking {settings.model} with {settings.attack} ({settings.threat}), {sigma}, {actions} actions")
    hide_progress = not (args.progress or sys.stderr.isatty())
    with only_writer(folder):
        if settings.attack == LEARNED:
            plan = plan.by(args.adversary or _trained(plan, args, folder / "adversary.zip", hide_progress))
        if settings.attack == ROBUST_SARSA:
            plan = plan.with_critic(args.critic or _learned_critic(plan, args, folder / "critic.npz", hide_progress))
        if settings.attack != LEARNED and not is_per_step(settings.threat):
            plan = plan.with_spending()
        _play_and_write(plan, file, args.resume, hide_progress)
    return file


def _trained(attack: AttackPlan, args: argparse.Namespace, file: Path, hide_progress: bool) -> Path:
    """The adversary of this folder, trained now unless an interrupted attack is resumed that has one, trained for the same."""
    note = {"largest": attack.budgets[-1], "timesteps": args.adversary_timesteps, **_trained_for(attack)}
    if not (args.resume and _was_made_for(file, note)):
        if attack.budgets[-1] == 0:
            raise InputError(f"--attack learned needs --{size_name(attack.settings.threat)} above 0 to train an adversary for")
        if file.exists():
            print(f"Replacing the adversary in {file}: to use it, give --adversary {shlex.quote(str(file))}")
        train_and_save(attack.player, attack.budgets[-1], args.adversary_timesteps, args.seed, file, hide_progress)
        _note_down(file, note)
    return file


def _learned_critic(attack: AttackPlan, args: argparse.Namespace, file: Path, hide_progress: bool) -> Path:
    """The critic of this folder, learned now unless an interrupted attack is resumed that has one of the same policy."""
    note = _trained_for(attack)
    if not (args.resume and _was_made_for(file, note)):
        save_critic(train_critic(attack.player, args.seed, hide_progress), file)
        _note_down(file, note)
        print(f"Written: {file}")
    return file


def _trained_for(attack: AttackPlan) -> dict[str, Any]:
    """What an adversary or a critic depends on."""
    settings = attack.settings.as_json()
    return {name: settings[name] for name in (*_SCENARIO, *DECISIVE_POLICY_KEYS, "key", "seed", "threat")}


def _note(file: Path) -> Path:
    """Beside what was trained: what for."""
    return file.with_name(f"{file.stem}.trained_for.json")


def _note_down(file: Path, note: dict[str, Any]) -> None:
    write_files({_note(file): json_writer({**note, "sha256": sha256(read_bytes(file))})})


def _was_made_for(file: Path, note: dict[str, Any]) -> bool:
    """Whether the file is there and was made for this. Earlier versions have left no note."""
    if not (file.exists() and _note(file).exists()):
        return file.exists()
    return read_json(_note(file)) == {**note, "sha256": sha256(read_bytes(file))}


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


def _play_and_write(attack: AttackPlan, file: Path, resume: bool, hide_progress: bool) -> None:
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


def _what_is_left(attack: AttackPlan, partial: Path) -> str:
    if partial.exists():
        return "the same command with --resume continues"
    first = attack.chunks[0].n_episodes
    return f"nothing is kept, as the first {first} episodes were not finished (smaller -n or --n-envs: sooner)"


def _play(
    attack: AttackPlan,
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


def _n_finished_budgets(file: Path, attack: AttackPlan) -> int:
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


def compare_with_certificate(file: Path, folders: Sequence[Path]) -> None:
    """
    Look for the certificate of the policy, and whether the attack contradicts it.

    :param file: The ``attack.json``
    :param folders: Where a certificate may be
    :raises CertificateViolation: if it does
    """
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
