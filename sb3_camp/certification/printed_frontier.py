"""A frontier, and the plan of an evaluation, as text for people, for the terminal."""

from collections.abc import Sequence

from sb3_camp.certification.certificate_figure import default_labels, differing_lines, differing_settings
from sb3_camp.certification.episode_logs import EpisodeLog
from sb3_camp.certification.frontier_files import CertifiedFrontier
from sb3_camp.certification.planning import MOST_EPISODES, Plan
from sb3_camp.certification.rounded_text import confidence, exact, floor_decimals, floor_digits
from sb3_camp.text import printable


def print_frontier(frontier: CertifiedFrontier, every: int) -> None:
    """
    Print the best of several evaluations at each radius.

    :param frontier: the frontier
    :param every: show the first of so many radii
    """
    certificates = frontier.certificates
    share = certificates[0].alpha
    print(f"Confidence {confidence(frontier.alpha)} for all evaluations and radii together, each at alpha {share:.6g}")
    print("Assumed: they were listed before they were played, and all that were listed are here")
    for index, (label, one) in enumerate(zip(default_labels(certificates), certificates, strict=True), start=1):
        assumed = ", sigma assumed" if one.sigma_assumed else ""
        assumed += ", independence of the episodes assumed" if one.independence_assumed else ""
        print(f"[{index}] {label}: {one.n_episodes} episodes, mean return {one.mean_return:.2f}{assumed}")
    for line in differing_lines(certificates):
        print(line)
    if {"env_kwargs", "env_wrappers"} & set(differing_settings(certificates)):
        print("Where these change rewards or the game itself, the best is of different tasks and tells nothing")
    head = "".join(f"{f'[{index}]':>12}" for index in range(1, len(certificates) + 1))
    print(f"\n{'radius':>12} {'certified return':>18} {'best':>6}{head}")
    rows = list(zip(frontier.radii, frontier.certified_return, frontier.best, strict=True))
    for row, (radius, value, best) in list(enumerate(rows))[::every]:
        cells = "".join(f"{floor_decimals(one.certified_return[row], 3):>12}" for one in certificates)
        print(f"{floor_digits(radius, 6):>12} {floor_decimals(value, 3):>18} {f'[{best + 1}]':>6}{cells}")


def print_plan(plan: Plan, logs: Sequence[EpisodeLog], *, target: float, radius: float, alpha: float, level: float) -> None:
    """
    Print how many episodes would certify a target.

    :param plan: the plan
    :param logs: the logs of the pilot
    :param target: the return to certify
    :param radius: at which radius
    :param alpha: of the certificate
    :param level: the share of alpha of a look, ``alpha`` itself where none were planned
    """
    where = f"at radius {exact(radius)} with confidence {confidence(alpha)}"
    n_episodes, looks = sum(log.returns.size for log in logs), logs[0].looks
    print(f"These {n_episodes} episodes certify {floor_decimals(plan.certified, 3)} {where}")
    if looks is not None:
        print(
            f"As for all numbers here, at the share {level:.6g} of alpha {exact(alpha)}: {len(looks.looks)} looks were planned"
        )
    ceiling = floor_decimals(plan.ceiling, 3)
    if plan.n_episodes is None:
        print(f"No number of episodes (up to {MOST_EPISODES}) would certify {exact(target)} there, if their returns are")
        print(f"distributed as those seen: ever more of them come near {ceiling}, and do not reach it")
        return
    print(f"About {plan.n_episodes} episodes would certify {exact(target)} there, if their returns are distributed as those")
    print(f"seen; not all evaluations of this size do, so play a third more. Ever more episodes come near {ceiling}")
    print("Play them afresh, with another --seed: these episodes chose the number")
    if looks is not None:
        print(
            f"With {len(looks.looks)} looks again (--until, --looks) this is the number at a look; without looks (-n) fewer do"
        )
    keys = [one.key.name for one in logs[0].recorded]
    if keys:
        print(
            f"Bounds on what was recorded too ({', '.join(map(printable, keys))}) leave the returns 1 / {1 + len(keys)} of "
            f"alpha: plan for them with --alpha {alpha / (1 + len(keys)):.6g}"
        )
