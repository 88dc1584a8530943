"""All attacks that apply to a policy, one after the other, and which of them is the strongest: ``--attack all``."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch as th

from sb3_camp.action_scores import action_scores
from sb3_camp.attack_names import LEARNED, TRANSFER
from sb3_camp.attack_runs.attack_figure import attack_figure
from sb3_camp.attack_runs.attack_files import read_attack
from sb3_camp.attack_runs.attack_plan import Victim, plan_attack
from sb3_camp.attack_runs.attack_player import AttackPlayer
from sb3_camp.attack_runs.attack_result import AttackResult, BudgetResult
from sb3_camp.attack_runs.policy_steps import observed_steps
from sb3_camp.attack_runs.single_attack import attack_into, compare_with_certificate, default_folder, folder_name
from sb3_camp.attack_runs.verdict import RANDOM, VERDICT_FORMAT, Strongest, reasons, strongest, verdict_as_json
from sb3_camp.attacks.registry import ATTACKS
from sb3_camp.certification.picture_file import save_figure
from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import CertificateViolation, InputError, NoGradients
from sb3_camp.files import json_writer, write_files

_N_STEPS = 500


def run_suite(args: argparse.Namespace, victim: Victim) -> None:
    """
    Make all attacks that apply to a policy, the blind one first and the learned one last, each as its own command would, and
    write ``verdict_sigma<S>.json`` and ``.png`` beside their folders.

    :param args: Arguments of the command
    :param victim: The policy that they name
    :raises InputError: if they cannot be used
    :raises CertificateViolation: if the returns of an attack contradict the certificate of the policy, after the verdict
    """
    if args.n_episodes < 2:
        raise InputError("--attack all needs -n 2 and more: some episodes choose the strongest attack, the others measure it")
    names, left_out = [], {}
    for name in (RANDOM, *(name for name in ATTACKS if name != RANDOM)):
        try:
            victim.player.attack(name)
            names.append(name)
        except InputError as error:
            left_out[name] = str(error)
    if TRANSFER in names and args.transfer_from is None:
        names.remove(TRANSFER)
        left_out[TRANSFER] = "it needs another agent: name its checkpoint with --transfer-from"
    plans = [plan_attack(args, victim, name) for name in (*names, LEARNED)]
    if plans[-1].budgets[-1] == 0:
        raise InputError("--attack all needs a --budget (or --epsilon) above 0")
    for name, reason in left_out.items():
        print(f"Left out {name}: {reason}")
    folder = args.output or victim.path.parent / "attacks"
    files = []
    for plan in plans:
        try:
            files.append(attack_into(default_folder(plan, folder), plan, args))
        except NoGradients as error:
            left_out[plan.settings.attack] = str(error)
            print(f"Left out {plan.settings.attack}: {error}")
    attacks = [read_attack(file) for file in files]
    found = strongest(attacks)
    why = reasons(attacks, _zero_gradients(victim.player))
    _print(found, why)
    print("Written: " + ", ".join(map(str, _write(folder, attacks, found, why, left_out))))
    violation: CertificateViolation | None = None
    for file in files:
        try:
            compare_with_certificate(file, [victim.path.parent / "certification", folder])
        except CertificateViolation as error:
            violation = violation or error
    if violation is not None:
        raise violation


def _zero_gradients(player: AttackPlayer) -> float | None:
    """
    At which share of the observations the gradient of the two highest action scores' difference is exactly zero; None for a
    policy without such scores, or one that observes more than one entry.
    """
    try:
        scores = action_scores(player.model.policy)
    except InputError:
        return None
    zeros: list[bool] = []
    for _, observed in observed_steps(player, player.model, _N_STEPS, 0):
        if not isinstance(observed, th.Tensor):
            return None
        seen = observed.detach().float().requires_grad_(True)
        top = scores(seen).topk(2, dim=1).values
        if not top.requires_grad:
            return 1.0
        (gradient,) = th.autograd.grad((top[:, 0] - top[:, 1]).sum(), seen, materialize_grads=True)
        zeros += (gradient.flatten(1) == 0).all(dim=1).tolist()
    return float(np.mean(zeros))


def _print(found: Sequence[Strongest], why: dict[str, str]) -> None:
    print("\nThe strongest attack at each budget")
    print(f"{'budget':>10}  {'attack':<14}{'mean return':>12}{'95% interval':>24}")
    for one in found:
        interval = one.confidence_interval
        text = "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
        name = one.attack if one.at_budget == one.budget else f"{one.attack} at {exact(one.at_budget)}"
        print(f"{one.budget:>10.6g}  {name:<14}{one.mean_return:>12.2f}{text:>24}")
    first = found[0]
    print(f"chosen by the first {first.n_pilot} episodes of each attack, measured by the {first.n_episodes} others")
    for name, text in why.items():
        print(f"{name} did not hurt: {text}")


def _write(
    folder: Path,
    attacks: Sequence[AttackResult],
    found: Sequence[Strongest],
    why: dict[str, str],
    left_out: dict[str, str],
) -> list[Path]:
    settings = attacks[0].settings
    name = folder_name(replace(settings, attack="verdict"))
    content = {
        "format": VERDICT_FORMAT,
        **{
            key: value
            for key, value in settings.as_json().items()
            if key in ("env_id", "algo", "model", "model_sha256", "sigma")
        },
        "confidence": attacks[0].confidence,
        "attacks": [attack.settings.attack for attack in attacks],
        **verdict_as_json(found, why, left_out),
    }
    best = AttackResult(
        replace(settings, attack="the strongest", n_episodes=found[0].n_episodes),
        tuple(BudgetResult(one.budget, one.mean_return, one.confidence_interval) for one in found),
        attacks[0].confidence,
    )
    files = {
        folder / f"{name}.png": lambda file: save_figure(attack_figure([*attacks, best]), file),
        folder / f"{name}.json": json_writer(content),
    }
    write_files(files)
    return list(files)
