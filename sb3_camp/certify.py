"""
``python -m sb3_camp.certify``: from the log of an evaluation to a certificate.

How much expected return a policy keeps under any attack on its observations, as a function of the l2 norm of the attack over
an episode. The policy must act on observations with Gaussian noise, and its episodes must be logged by ``sb3_camp.evaluate``,
the zoo's ``enjoy --reward-log`` or SB3's ``EvalCallback``.
"""

import argparse
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sb3_camp.certification.assumptions import Evidence, find_evidence
from sb3_camp.certification.band_registry import BANDS
from sb3_camp.certification.build import certificate_of, default_radii
from sb3_camp.certification.certificate import Certificate, Source, read_certificate
from sb3_camp.certification.certificate_files import write_certificate
from sb3_camp.certification.episode_logs import MOST, EpisodeLog
from sb3_camp.certification.frontier_files import build_frontier, write_frontier
from sb3_camp.certification.per_step import NORMS, per_step_bound
from sb3_camp.certification.planning import plan_episodes
from sb3_camp.certification.pooling import read_logs
from sb3_camp.certification.printed_frontier import print_frontier, print_plan
from sb3_camp.certification.printed_report import print_report
from sb3_camp.certification.recorded_bounds import Wanted, band_alpha
from sb3_camp.certification.rounded_text import exact
from sb3_camp.certification.support_argument import find_support
from sb3_camp.command_line import CommandParser, exit_status, invocation
from sb3_camp.errors import InputError
from sb3_camp.files import only_writer, read_bytes, sha256
from sb3_camp.plugins import load_plugins
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.text import printable

MONITOR_WARNING = (
    "a monitor log lacks the episode that the step limit of enjoy (-n) cut off, with several envs short episodes are "
    "over-represented, it does not tell whether actions were greedy or --env-kwargs changed the noise, and it must not be the "
    "log of a training: evaluate has none of these faults"
)

ALPHA = 0.05
"""Unless another one is asked for."""

# Beyond, every certified return is the lowest return
_MOST_SIGMAS = 1e6


def command_parser() -> argparse.ArgumentParser:
    """
    :return: parser of the command line
    """
    parser = CommandParser(
        prog="certify",
        usage=f"{invocation('certify')} PATH [PATH ...] [options]",
        description="Certify the expected return of a smoothed policy under attacks on its observations.",
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="zoo run folder, evaluations.npz, *.monitor.csv or a folder with these; several are pooled",
    )
    parser.add_argument(
        "--sigma", type=float, help="the noise that was on the observations, where neither the log nor its run folder tells"
    )
    parser.add_argument(
        "--alpha",
        type=float,
        help=f"anything in the certificate is wrong with at most this probability (default: {ALPHA}, or that of the looks "
        "that were planned)",
    )
    parser.add_argument(
        "--method", choices=BANDS, default="berk-jones", help="Confidence band on the distribution of the return"
    )
    parser.add_argument(
        "--min-return",
        type=float,
        help="a return that no episode can fall below (known for the tasks of this package and some of Gymnasium's, asked for "
        "otherwise)",
    )
    parser.add_argument(
        "--support",
        nargs="+",
        metavar="RETURN",
        help="For clopper-pearson: the possible returns, as numbers or a range like 1:200",
    )
    parser.add_argument(
        "--radii", type=float, nargs="+", action="extend", metavar="R", help="l2 radii (default: 121 up to 3 sigma)"
    )
    parser.add_argument(
        "--targets", type=float, nargs="+", action="extend", default=[], metavar="RETURN", help="Also find their largest radii"
    )
    more = parser.add_argument_group("certified too, from the same band, without more alpha")
    more.add_argument(
        "--probability-of",
        type=_finite,
        nargs="+",
        action="extend",
        default=[],
        metavar="RETURN",
        help="the probability that an episode returns at least this",
    )
    more.add_argument(
        "--quantile",
        type=_finite,
        nargs="+",
        action="extend",
        default=[],
        metavar="Q",
        help="the return that an episode reaches with probability 1 - Q (0.05: in 95 of 100 episodes)",
    )
    more.add_argument(
        "--cvar",
        type=_finite,
        nargs="+",
        action="extend",
        default=[],
        metavar="Q",
        help="the mean return of the worst share Q of the episodes",
    )
    per_step = parser.add_argument_group("against an adversary with a bound on each step instead of the whole episode")
    per_step.add_argument(
        "--epsilon",
        type=float,
        nargs="+",
        metavar="E",
        help="the bound, in the units of the radii (in sigmas where each sensor has its own); for linf also one number for "
        "each sensor, in its units",
    )
    per_step.add_argument(
        "--epsilon-norm", choices=NORMS, default="l2", help="on the l2 norm of a step (the default), or on each number in it"
    )
    per_step.add_argument("--steps", type=int, metavar="T", help="the most steps of an episode, where nothing tells")
    recorded = parser.add_argument_group("certified too, of what evaluate recorded (--record), each with a share of alpha")
    recorded.add_argument(
        "--at-least",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY",
        help="what should be large, as is_success: a lower bound",
    )
    recorded.add_argument(
        "--at-most",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY",
        help="what should be small, as crashed, cost: an upper bound",
    )
    recorded.add_argument(
        "--worst",
        type=_key_and_value,
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY:VALUE",
        help="for a number: the lowest (--at-least) or highest (--at-most) value that any episode can have",
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="Folder for the certificate (default: certification/ of the run; frontier/)"
    )
    parser.add_argument(
        "--frontier",
        action="store_true",
        help="take each PATH as an evaluation of its own (another sigma, checkpoint or seed, all listed beforehand) and find "
        "the best at each radius, at a joint alpha",
    )
    plan = parser.add_argument_group("how many episodes would do")
    plan.add_argument(
        "--plan", action="store_true", help="certify nothing; say how many episodes would certify --target at --radius"
    )
    plan.add_argument("--target", type=_finite, metavar="RETURN", help="for --plan: the expected return to certify")
    plan.add_argument("--radius", type=_finite, metavar="R", help="for --plan: at this l2 radius")
    return parser


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number up to {MOST:g}")
    return value + 0.0  # no -0


def _key_and_value(text: str) -> tuple[str, float]:
    key, _, value = text.rpartition(":")
    if not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY:VALUE")
    return key, _finite(value)


def _worst_values(given: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The worst value of each key: of two, neither is taken without a word."""
    keys = [key for key, _ in given]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"--worst: {printable(key)} is named twice: give the one value that no episode is worse than")
    return dict(given)


def _certify(args: argparse.Namespace) -> None:
    _check_mode(args)
    if args.frontier:
        return _certify_frontier(args)
    logs = read_logs(args.paths)
    evidence = find_evidence(logs, args.sigma, args.min_return)
    support, run = find_support(args.support, args.method, evidence), evidence.run
    if args.plan:
        return _plan(args, evidence, support)
    certificate = certificate_of(
        evidence,
        _find_radii(args.radii, evidence.sigma),
        alpha=_find_alpha(args.alpha, logs),
        method=args.method,
        support=support,
        targets=args.targets,
        probability_of=args.probability_of,
        quantiles=args.quantile,
        cvars=args.cvar,
        per_step=per_step_bound(logs, args.epsilon, args.epsilon_norm, args.steps) if args.epsilon else None,
        wanted=Wanted(args.at_least, args.at_most, _worst_values(args.worst)),
    )
    folder = args.output or (logs[0].path.parent if run is None else run.path / "certification")
    with only_writer(folder):
        earlier = _earlier_certificate(folder, logs, asked=args.output is not None)
        files = write_certificate(certificate, folder)
    _warn(evidence)
    print_report(certificate, every=10 if args.radii is None else 1)
    print("Written: " + ", ".join(printable(str(file)) for file in files))
    if earlier is not None:
        settings = f"{printable(earlier.method)}, alpha {exact(earlier.alpha)}, {earlier.n_episodes} episodes"
        same = all(getattr(earlier, name) == getattr(certificate, name) for name in ("method", "alpha", "level", "support"))
        together = "" if same else "; both hold together at the sum of their alphas only"
        print(f"Replaced: the certificate that was there ({settings}){together}")


def _check_mode(args: argparse.Namespace) -> None:
    """Refuse options that say nothing in what is asked for."""
    if args.plan and args.frontier:
        raise InputError("--plan and --frontier exclude each other")
    if args.plan and (args.target is None or args.radius is None):
        raise InputError("--plan needs --target and --radius: the return to certify, and at which radius")
    of_a_certificate = {
        "--targets": args.targets,
        "--probability-of": args.probability_of,
        "--quantile": args.quantile,
        "--cvar": args.cvar,
        "--epsilon": args.epsilon,
        "--at-least": args.at_least,
        "--at-most": args.at_most,
        "--worst": args.worst,
    }
    unfit = of_a_certificate if args.frontier else {}
    mode = "--frontier"
    if args.plan:
        unfit, mode = {**of_a_certificate, "--radii": args.radii, "-o": args.output}, "--plan"
    for option, given in unfit.items():
        if given:
            raise InputError(f"{option} cannot be used with {mode}")
    if args.epsilon is None and (args.epsilon_norm != NORMS[0] or args.steps is not None):
        raise InputError("--epsilon-norm and --steps are for --epsilon")
    for option, given in (("--target", args.target), ("--radius", args.radius)):
        if given is not None and not args.plan:
            raise InputError(f"{option} is for --plan: a certificate has --targets and --radii")


def _plan(args: argparse.Namespace, evidence: Evidence, support: list[float] | None) -> None:
    alpha = _find_alpha(args.alpha, evidence.logs)
    level = band_alpha(evidence.logs, alpha)
    plan = plan_episodes(
        evidence.returns,
        evidence.sigma,
        args.target,
        args.radius,
        alpha=level,
        method=args.method,
        min_return=evidence.min_return,
        support=support,
    )
    _warn(evidence)
    print_plan(plan, evidence.logs, target=args.target, radius=args.radius, alpha=alpha, level=level)


def _certify_frontier(args: argparse.Namespace) -> None:
    evidences = [find_evidence(read_logs([path]), args.sigma, args.min_return) for path in args.paths]
    radii = _find_radii(args.radii, max(evidence.sigma for evidence in evidences))
    supports = [find_support(args.support, args.method, evidence) for evidence in evidences]
    alpha = _find_alpha(args.alpha, [log for evidence in evidences for log in evidence.logs])
    frontier = build_frontier(evidences, supports, radii, alpha=alpha, method=args.method)
    folder = args.output or Path("frontier")
    with only_writer(folder):
        if args.output is None and (folder / "frontier.json").exists():
            raise InputError(f"{folder / 'frontier.json'}: there already: give another folder, or replace it with -o {folder}")
        files = write_frontier(frontier, folder)
    for evidence in evidences:
        _warn(evidence)
    print_frontier(frontier, every=10 if args.radii is None else 1)
    print("Written: " + ", ".join(printable(str(file)) for file in files))


def _earlier_certificate(folder: Path, logs: list[EpisodeLog], asked: bool) -> Certificate | None:
    """
    The certificate that will be replaced. One that was made from other logs than these, or from their like elsewhere, is
    replaced only if that was asked for.
    """
    file = folder / "certificate.json"
    if not file.exists():
        return None
    way_out = f"give another folder with -o, or replace it with -o {shlex.quote(str(folder))}"
    try:
        earlier = read_certificate(file)
    except InputError as error:
        if asked:
            return None
        raise InputError(f"{error}: {way_out}") from None
    sources = earlier.sources
    same = len(sources) == len(logs) and all(any(_is_source(log, source) for source in sources) for log in logs)
    if not same and not asked:
        names = ", ".join(source.path for source in sources)
        raise InputError(f"{file}: a certificate from other logs ({names}): {way_out}")
    return earlier


def _is_source(log: EpisodeLog, source: Source) -> bool:
    """Whether a source is this log, or an older state of it; its path may be relative to another working folder."""
    parts = tuple(part for part in Path(source.path).parts if part != "..")
    return source.sha256 == log.sha256 or log.path.resolve().parts[-len(parts) :] == parts or log.path == Path(source.path)


def _find_alpha(given: float | None, logs: Sequence[EpisodeLog]) -> float:
    """By default that of the looks that were planned, so that the target that ended an evaluation is certified."""
    if given is not None:
        return given
    return min((log.looks.alpha for log in logs if log.looks is not None), default=ALPHA)


def _find_radii(given: list[float] | None, sigma: float) -> np.ndarray:
    if given is None:
        return default_radii(sigma)
    radii = np.unique(given)
    if not np.all(np.isfinite(radii)) or np.any(radii < 0):
        raise InputError("--radii must be finite numbers that are at least 0")
    if radii[-1] > _MOST_SIGMAS * sigma:
        raise InputError(f"--radii: nothing can be certified at {radii[-1]:g}, with noise of sigma {sigma:g}")
    return radii


def _warn(evidence: Evidence) -> None:
    for warning in _warnings(evidence.logs, evidence.run):
        print(f"certify: warning: {printable(warning)}", file=sys.stderr)


def _warnings(logs: list[EpisodeLog], run: RunFolder | None) -> Iterator[str]:
    if logs[0].is_monitor:
        yield MONITOR_WARNING
    for log in logs:
        partial = log.path.with_name("evaluations.partial.npz")
        if log.is_evaluation and partial.is_file():
            yield f"{partial}: an interrupted evaluation, not part of this certificate: finish it with evaluate --resume"
    untold = [str(log.path) for log in logs if log.env_versions is None]
    if logs[0].is_evaluation and len(logs) > 1 and untold:
        yield f"{', '.join(untold)}: nothing shows that it played the same version of the environment as the others"
    if run is not None and logs[0].is_evaluation:  # all of one model
        models = run.path.glob("*.zip")
        if not any(_has_digest(model, logs[0].model_sha256) for model in models):
            yield f"{logs[0].path}: its model is none of the *.zip files in {run.path} (any more)"


def _has_digest(file: Path, digest: str | None) -> bool:
    try:
        return sha256(read_bytes(file)) == digest
    except InputError:
        return False


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the command line, by default that of the process
    :return: exit status: 0, 2 for input that cannot be used, 130 if interrupted
    """
    load_plugins()
    args = command_parser().parse_args(argv)
    return exit_status("certify", lambda: _certify(args))


if __name__ == "__main__":
    sys.exit(main())
