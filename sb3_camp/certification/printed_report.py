"""A certificate as text for people, for the terminal."""

import json

from sb3_camp.certification.assumptions import KNOWN
from sb3_camp.certification.build import ceiling_of_more
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.certificate_figure import CHOICE_OF_ACTIONS
from sb3_camp.certification.joint_statement import uncertified_statement
from sb3_camp.certification.per_step import print_per_step
from sb3_camp.certification.quantity_text import meaning, meaning_of_bound, shown, shown_bound
from sb3_camp.certification.recorded_bound import AT_LEAST
from sb3_camp.certification.rounded_text import (
    ceil_decimals,
    confidence,
    exact,
    floor_decimals,
    floor_digits,
    quotient,
)
from sb3_camp.certification.sensor_table import print_sensors
from sb3_camp.runs.scenario import without_sigma
from sb3_camp.text import printable


def print_report(certificate: Certificate, every: int) -> None:
    """
    Print what was certified, with which episodes, and under which assumptions. No bound is shown higher than it is.

    :param certificate: the certificate
    :param every: show the first of so many radii
    """
    sigma, m = certificate.sigma, certificate.n_episodes
    names = ", ".join(printable(name) for name in (certificate.env_id, certificate.algo) if name)
    print(
        f"{names or 'unknown environment'}: {m} episodes with {CHOICE_OF_ACTIONS[certificate.deterministic]}, mean return "
        f"{certificate.mean_return:.2f}"
    )
    settings = without_sigma(certificate.env_kwargs or {}, sigma)
    if settings:
        print(f"Environment made with {printable(json.dumps(settings, sort_keys=True))}")
    if certificate.model is not None or certificate.timesteps is not None:
        print(f"Checkpoint: {_checkpoint(certificate)}")
    scale = f" of 255 ({floor_digits(quotient(sigma, 255), 6)})" if certificate.pixels else ""
    own = "of its own on each sensor, the unit of the radius" if certificate.sensor_sigma is not None else exact(sigma)
    print(
        f"Noise sigma {own}{scale}; method {certificate.method}, confidence {confidence(certificate.alpha)} "
        f"for all radii{' and bounds' if certificate.recorded else ''} together"
    )
    _print_shares(certificate)
    if certificate.sigma_assumed:
        print(f"Assumed: the episodes were played with fresh noise of sigma {exact(sigma)} on each observation (no log tells)")
    if certificate.min_return_basis == KNOWN:
        print(
            f"Known of {printable(certificate.env_id or '')}: no episode can return less than {exact(certificate.min_return)}"
        )
    else:
        print(f"Assumed: no episode can return less than {exact(certificate.min_return)}")
    if certificate.independence_assumed:
        print(
            "Assumed: the episodes are independent, each from a reset that drew its start afresh. What an env keeps does not\n"
            "show in these logs: they do not tell which env played which, or a single one or an unknown vector env played all"
        )
    if certificate.support is not None:
        low, high = exact(certificate.support[0]), exact(certificate.support[-1])
        print(f"Assumed: the {len(certificate.support)} thresholds from {low} to {high} were fixed beforehand (--support)")
    if certificate.clean_keys:
        print(f"Not covered: perturbations of the entries {', '.join(map(printable, certificate.clean_keys))} (clean_keys)")
    _print_curve(certificate, every)
    if certificate.quantities:
        _print_quantities(certificate, every)
    print_per_step(certificate)
    if certificate.recorded:
        _print_recorded(certificate, every)
    _print_slope(certificate)
    print_sensors(certificate)
    if certificate.ceiling is not None:
        _print_ceiling(certificate, certificate.ceiling.ratio)
    for target, reached in certificate.targets.items():
        print(
            f"Return {target}: "
            + ("not certified at any radius" if reached is None else f"certified up to radius {floor_digits(reached, 6)}")
        )


def _print_curve(certificate: Certificate, every: int) -> None:
    over_255 = f" {'radius/255':>12}" if certificate.pixels else ""
    print(f"\n{'radius':>12}{over_255} {'radius/sigma':>14} {'certified return':>18}")
    curve = list(zip(certificate.radii, certificate.certified_return, strict=True))
    for radius, value in curve[::every]:
        # A radius that is shown too small is on the safe side too
        over_255 = f" {floor_digits(quotient(radius, 255), 6):>12}" if certificate.pixels else ""
        ratio = floor_decimals(quotient(radius, certificate.sigma), 3)
        print(f"{floor_digits(radius, 6):>12}{over_255} {ratio:>14} {floor_decimals(value, 3):>18}")


def _print_shares(certificate: Certificate) -> None:
    """How alpha is shared."""
    if certificate.looks is not None:
        number, planned = certificate.looks.index(certificate.n_episodes) + 1, ", ".join(map(str, certificate.looks))
        print(f"Stopped at look {number} of {len(certificate.looks)} that were planned ({planned} episodes)")
    if certificate.is_shared:
        print(f"Of alpha {exact(certificate.alpha)}, each band has the share {certificate.level:.6g} (fixed beforehand)")
    if certificate.uncertified_keys:
        print(uncertified_statement(certificate.alpha, certificate.uncertified_keys))


def _print_quantities(certificate: Certificate, every: int) -> None:
    print("\nCertified with the same confidence, together with the returns above:")
    _print_columns(certificate, [(meaning(one), shown(one)) for one in certificate.quantities], every)


def _print_recorded(certificate: Certificate, every: int) -> None:
    print("\nCertified of what was recorded, each from a band of its own, together with all above:")
    _print_columns(certificate, [(meaning_of_bound(one), shown_bound(one)) for one in certificate.recorded], every)
    for one in certificate.recorded:
        missing = f"; missing in {one.n_missing} episodes, which count as {exact(one.worst)}" if one.n_missing else ""
        worst = "lowest" if one.side == AT_LEAST else "highest"
        assumed = "" if one.is_event else f"; assumed: {exact(one.worst)} is the {worst} that any can have (--worst)"
        print(f"Mean of {printable(one.key)} without an attack: {one.mean:.6g}{missing}{assumed}")


def _print_columns(certificate: Certificate, columns: list[tuple[str, list[str]]], every: int) -> None:
    for index, (text, _) in enumerate(columns, start=1):
        print(f"[{index}] {text}")
    print(f"\n{'radius':>12}" + "".join(f"{f'[{index}]':>14}" for index in range(1, len(columns) + 1)))
    for row, radius in list(enumerate(certificate.radii))[::every]:
        print(f"{floor_digits(radius, 6):>12}" + "".join(f"{values[row]:>14}" for _, values in columns))


def _print_slope(certificate: Certificate) -> None:
    """How much hangs on the lowest return."""
    if certificate.min_return_slope is None:
        return
    slope = certificate.min_return_slope
    # At the first radius, at that nearest to sigma, and at the last
    nearest = min(range(len(slope)), key=lambda index: abs(certificate.radii[index] - certificate.sigma))
    texts = [
        f"{ceil_decimals(slope[index], 4)} at radius {floor_digits(certificate.radii[index], 6)}"
        for index in sorted({0, nearest, len(slope) - 1})
    ]
    print(f"\nFor each 1 that an episode could return less than {exact(certificate.min_return)}, the bound would be lower by")
    print(", ".join(texts))


def _print_ceiling(certificate: Certificate, ratio: float) -> None:
    sigma, m = certificate.sigma, certificate.n_episodes
    more = ceiling_of_more(certificate, 10 * m)
    print(
        f"\nCeiling: beyond radius {ratio * sigma:.4g} ({ratio:.2f} sigma), {m} episodes certify less than half of what even\n"
        f"a perfect policy earns above the lowest return {exact(certificate.min_return)}; with {10 * m} episodes this would\n"
        f"be about radius {more * sigma:.4g} ({more:.2f} sigma)"
    )


def _checkpoint(certificate: Certificate) -> str:
    model, timesteps = certificate.model, certificate.timesteps
    after = "" if timesteps is None else f"policy after {timesteps} steps"
    return after if model is None else printable(model) + (after and f", {after}")
