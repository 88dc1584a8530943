"""
Train, evaluate, certify and attack a grid of agents, into one table: ``DIR/results.csv``.

Each cell of the grid is a folder in DIR, made by the commands in its ``commands.txt``. What is done is not done again: the
same command goes on where it was interrupted. Started several times, also on other machines that share DIR, it shares the
grid. More tasks, algorithms, sigmas, lambdas, variants and seeds may be added to a sweep later.

Example:
  python zoo_scripts/sweep.py -o sweep --tasks camp/CartPole1-v0 --algos camp_dqn gaussian_dqn --sigmas 0.2 0.4 --seeds 0 1 2
"""

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from sweep_cells import Cell
from sweep_claims import Claims, lock_file
from sweep_grid import (
    CAMP,
    SWEEP_FORMAT,
    build_grid,
    find_conf,
    keep_settings,
    package_hyperparameters,
    parse_variants,
)
from sweep_steps import Step, StepFailed, attack_folder, attack_names, cell_steps, evaluation_folder, locked, run_cell
from sweep_table import write_tables
from tqdm import tqdm

import sb3_camp.zoo
from sb3_camp.attack_runs import read_attack
from sb3_camp.attack_runs.consistency import compare, evaluated_returns, incomparable
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.rounded_text import exact
from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError
from sb3_camp.tuning.workers import open_study
from sb3_camp.wrappers.adversary import ATTACKS


@dataclass(frozen=True)
class _Sweep:
    folder: Path
    cells: list[Cell]
    settings: dict[str, Any]
    checkpoints: list[str]
    attacks: list[str]
    attack_sigmas: list[str]

    def steps(self, cell: Cell) -> list[Step]:
        return cell_steps(cell, self.settings, self.folder, self.checkpoints, self.attacks, self.attack_sigmas)

    def names(self, cell: Cell) -> list[str]:
        return [step.name for step in self.steps(cell)]

    def n_done(self, claims: Claims) -> int:
        return sum(claims.is_done(cell, self.names(cell)) for cell in self.cells)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("-o", "--output", type=Path, required=True, metavar="DIR", help="folder of the sweep")
    grid = parser.add_argument_group("grid")
    grid.add_argument("--tasks", nargs="+", required=True, help="ids of environments")
    grid.add_argument("--algos", nargs="+", required=True, help="algorithms, by the zoo's names")
    grid.add_argument("--sigmas", nargs="+", type=float, required=True, help="standard deviations of the noise")
    grid.add_argument("--seeds", nargs="+", type=int, required=True, help="seeds of training, evaluation and attack")
    grid.add_argument("--lambdas", nargs="+", type=float, help=f"constant camp_lambdas, for {CAMP} (default: its yml's)")
    grid.add_argument(
        "--variant",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME[:ALGO]", "PARAMS"),
        help="hyper-parameters as in the zoo's -params, \"camp_eta:1.0 imitation:'hard'\", for all algorithms or one; may be "
        'repeated; default "" adds those without a change. An algorithm that no variant is for has only these',
    )
    train = parser.add_argument_group("training")
    train.add_argument("-n", "--n-timesteps", type=int, help="steps of each training (default: as in its yml)")
    train.add_argument(
        "--conf",
        nargs="+",
        default=[],
        metavar="ALGO=FILE.yml",
        help="hyper-parameters (default: as the zoo finds them)",
    )
    train.add_argument("--eval-freq", type=int, default=5000, help="steps between validations (default: %(default)s)")
    train.add_argument("--eval-episodes", type=int, default=100, help="episodes of a validation (default: %(default)s)")
    train.add_argument("--n-eval-envs", type=int, default=20, help="envs of a validation (default: %(default)s)")
    train.add_argument("--device", default="auto", help="PyTorch device (cpu, cuda, ...)")
    train.add_argument("--gym-packages", nargs="+", default=[], help="packages that register environments")
    certify = parser.add_argument_group("evaluation and certificates")
    certify.add_argument(
        "--checkpoints", nargs="+", choices=["best", "last"], default=["best", "last"], help="the best by validation, the last"
    )
    certify.add_argument("--n-episodes", type=int, default=10_000, help="episodes of each evaluation (default: %(default)s)")
    certify.add_argument("--radii", nargs="+", type=float, help="radii of the certificates (default: 121 up to 3 sigma)")
    attack = parser.add_argument_group("attacks")
    attack.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=[], help="attacks (default: none)")
    attack.add_argument("--attack-budgets", nargs="+", type=float, help="budgets (default: those of sb3_camp.attack)")
    attack.add_argument("--attack-episodes", type=int, help="episodes at each budget (default: 1000)")
    attack.add_argument(
        "--attack-envs", type=int, help="envs that are attacked at once (default: 64; CartPole is much faster with 500)"
    )
    attack.add_argument(
        "--attack-sigma", nargs="+", choices=["own", "0"], default=["own"], help="attack with the noise of the cell, without"
    )
    add("--storage", help="journal file *.log or URL of a database, as in the zoo (default: DIR/study.log)")
    add("--study-name", help="name of the study (default: sweep; needed with a URL)")
    add("-P", "--progress", action="store_true", help="show a progress bar even if stderr is not a terminal")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: Arguments of the command line, those of the process by default
    :return: exit status: 0, 1 if a cell failed, 2 for bad input, 130 if interrupted
    """
    sb3_camp.zoo.register()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the end of a job's time: as Ctrl-C
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    failed: list[str] = []
    interrupted = "the same command goes on from here"
    status = exit_status("sweep", lambda: failed.extend(_sweep(_parser().parse_args(argv))), interrupted=interrupted)
    return status or (1 if failed else 0)


def _sweep(args: argparse.Namespace) -> list[str]:
    _check(args)
    for package in args.gym_packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise InputError(f"--gym-packages: cannot import {package}: {error}") from error
    variants = parse_variants(args.variant)
    cells = build_grid(args.tasks, args.algos, args.lambdas, variants, args.sigmas, args.seeds)
    storage, study_name = _storage(args)
    conf = find_conf(args.algos, args.conf)
    settings = keep_settings(
        args.output,
        {
            "format": SWEEP_FORMAT,
            **{name: getattr(args, name) for name in ("n_timesteps", "eval_freq", "eval_episodes", "n_eval_envs")},
            **{name: getattr(args, name) for name in ("device", "gym_packages", "n_episodes")},
            "radii": None if args.radii is None else sorted({abs(radius) for radius in args.radii}),
            "conf": conf,
            "package_hyperparameters": package_hyperparameters(args.tasks, args.algos, conf),
            "variants": {name: asdict(variant) for name, variant in variants.items()},
            "attack_budgets": sorted({abs(budget) for budget in args.attack_budgets}) if args.attack_budgets else None,
            "attack_episodes": (args.attack_episodes or 1000) if args.attacks else None,
            "attack_envs": (args.attack_envs or 64) if args.attacks else None,
        },
    )
    sweep = _Sweep(args.output, cells, settings, args.checkpoints, args.attacks, args.attack_sigma)
    study = open_study(storage, study_name, create=True)
    assert study is not None
    study.set_user_attr("value", "certified return (berk-jones) of the first checkpoint, at the radius sigma")
    claims = Claims(study, args.output)
    claims.refresh()
    hidden = not (args.progress or sys.stderr.isatty())
    with tqdm(total=len(cells), initial=sweep.n_done(claims), unit="cell", disable=hidden) as bar:
        while _work(sweep, claims, bar) or claims.wait_for_others(cells):
            pass
    return _report(sweep, claims)


def _check(args: argparse.Namespace) -> None:
    for name in ("n_timesteps", "eval_episodes", "n_eval_envs", "n_episodes", "attack_episodes", "attack_envs"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    for name in ("radii", "attack_budgets"):
        for value in getattr(args, name) or ():
            if not 0 <= value < float("inf"):
                raise InputError(f"--{name.replace('_', '-')} must be numbers that are at least 0, not {value:g}")
    if not args.attacks and (args.attack_budgets or args.attack_episodes or args.attack_envs):
        raise InputError("--attack-budgets, --attack-episodes and --attack-envs are for --attacks, which are not given")
    never = args.eval_freq < 1 or (args.n_timesteps is not None and args.eval_freq > args.n_timesteps)
    if "best" in args.checkpoints and never:
        raise InputError(
            f"--eval-freq {args.eval_freq}: without a validation during the training there is no best checkpoint: give a "
            "smaller one, or --checkpoints last"
        )


def _storage(args: argparse.Namespace) -> tuple[str, str]:
    storage = args.storage or str(args.output / "study.log")
    if not storage.endswith(".log") and "://" not in storage:
        raise InputError(f"--storage {storage}: neither a journal file *.log nor the URL of a database")
    if storage.endswith(".log"):
        return str(Path(storage).absolute()), args.study_name or "sweep"  # Optuna breaks stale locks of full paths only
    if args.study_name is None:
        raise InputError("--storage with a URL needs --study-name, as a database may hold several sweeps")
    return storage, args.study_name


def _work(sweep: _Sweep, claims: Claims, bar: tqdm) -> bool:
    """Do a cell that is free. Returns whether there was one."""
    claims.fail_dead()
    claims.refresh()
    bar.n = sweep.n_done(claims)
    bar.refresh()
    for cell in sweep.cells:
        if claims.is_done(cell, sweep.names(cell)) or claims.is_running(cell) or claims.error(cell) is not None:
            continue
        trial = claims.claim(cell)
        if trial is not None:
            _do(sweep, cell, claims, trial, bar)
        return True
    return False


def _do(sweep: _Sweep, cell: Cell, claims: Claims, trial: optuna.Trial, bar: tqdm) -> None:
    steps = sweep.steps(cell)

    def show(step: str) -> None:
        bar.set_description(f"{cell.name}: {step}")
        if bar.disable:
            print(f"{cell.name}: {step}", flush=True)

    try:
        with claims.attended(trial), locked(lock_file(sweep.folder, cell.name)):
            claims.note_lock(trial)
            run_cell(cell, steps, sweep.folder, show)
            claims.complete(trial, [step.name for step in steps], _value(sweep, cell))
    except StepFailed as error:
        claims.fail(trial, str(error))
        bar.write(f"sweep: {cell.name}: {error}", file=sys.stderr)
        return
    except BaseException:
        claims.fail(trial, None)
        raise
    write_tables(sweep.folder)
    for line in _contradictions(sweep, cell):
        bar.write(f"sweep: warning: {line}", file=sys.stderr)


def _value(sweep: _Sweep, cell: Cell) -> float:
    file = evaluation_folder(cell, sweep.folder, sweep.checkpoints[0]) / "berk-jones" / "certificate.json"
    certificate = read_certificate(file)
    value = certificate.value_at(cell.sigma)
    return float(certificate.certified_return[-1] if value is None else value)


def _contradictions(sweep: _Sweep, cell: Cell) -> list[str]:
    """Attacks that leave less of the return than is certified."""
    lines = []
    for checkpoint in sweep.checkpoints:
        certificate_file = evaluation_folder(cell, sweep.folder, checkpoint) / "berk-jones" / "certificate.json"
        certificate = read_certificate(certificate_file)
        evaluated = evaluated_returns(certificate, certificate_file)
        for name in attack_names(sweep.attacks, sweep.attack_sigmas):
            file = attack_folder(cell, sweep.folder, checkpoint, name) / "attack.json"
            attack = read_attack(file)
            if incomparable(attack, certificate) is None:
                lines += [
                    f"{file}: at budget {exact(one.budget)} the mean return is {one.mean_return:.2f}, in contradiction to "
                    f"the certified {one.certified:.2f}"
                    for one in compare(attack, certificate, evaluated).violations
                ]
    return lines


def _report(sweep: _Sweep, claims: Claims) -> list[str]:
    table = write_tables(sweep.folder)
    claims.refresh()
    errors = {cell.name: error for cell in sweep.cells if (error := claims.error(cell)) is not None}
    n_running = sum(claims.is_running(cell) for cell in sweep.cells)
    others = f", {n_running} are in work in other processes" if n_running else ""
    print(f"{sweep.n_done(claims)} of {len(sweep.cells)} cells are done{others}: {table}")
    for name, error in errors.items():
        print(f"sweep: failed, the same command tries again: {name}: {error}", file=sys.stderr)
    return list(errors)


if __name__ == "__main__":
    sys.exit(main())
