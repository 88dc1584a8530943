"""Pictures of attacks: the mean return as a function of the budget, alone or beside a certificate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sb3_camp.attack_runs.attack_result import AttackResult, AttackSettings
from sb3_camp.attack_runs.consistency import Comparison
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.certificate_figure import SENSOR_UNIT, check_one_environment, draw_certificate, norm_unit, variants
from sb3_camp.certification.curve_style import check_labels, curve_styles, literal, shown_label
from sb3_camp.certification.rounded_text import confidence, exact
from sb3_camp.errors import InputError
from sb3_camp.runs.layers import is_smoothing_noise
from sb3_camp.text import printable
from sb3_camp.threat_models import bound_text, size_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PIXEL = 255
_VIOLATION = "#D00000"


def attack_figure(
    attacks: Sequence[AttackResult],
    labels: Sequence[str] | None = None,
    *,
    certificate: Certificate | None = None,
    comparisons: Sequence[Comparison] = (),
    pixels: bool = False,
) -> "Figure":
    """
    Draw mean returns under attack, with their confidence intervals as error bars.

    With a certificate, its curve is drawn too, as a staircase, and a cross marks each mean whose episodes contradict it.

    :param attacks: What :func:`sb3_camp.attack_runs.read_attack` returns for each, all of one environment
    :param labels: One for each attack, distinct; between dollar signs in matplotlib's math notation. Default:
        :func:`default_labels`
    :param certificate: A certificate to which all the attacks are comparable
    :param comparisons: What :func:`sb3_camp.attack_runs.consistency.compare` returned for each attack
    :param pixels: Give budgets, radii and sigma in units of 255, for images whose pixels are 0 to 255
    :return: the figure, not registered with pyplot
    :raises InputError: if there is no attack, if they are of different environments, or if the labels do not fit
    """
    from matplotlib.figure import Figure  # slow to import, and no pyplot: nothing global, no display

    check_attacks(attacks, [f"attack {index}" for index in range(1, len(attacks) + 1)])
    if labels is None:
        texts = list(map(literal, default_labels(attacks, pixels=pixels)))
    else:
        texts = list(labels)
        check_labels(texts, [range(len(attacks))], "attacks")
    styles = curve_styles(texts, [attack.settings.algo for attack in attacks])
    unit = _PIXEL if pixels else 1
    marks, differing = _settings(attacks), differing_settings(attacks)

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    if certificate is not None:
        label = f"certified ({literal(certificate.method)}, confidence {confidence(certificate.alpha)})"
        draw_certificate(axes, certificate, label, {"color": "black", "linestyle": "-"}, unit)
    for i, (attack, text) in enumerate(zip(attacks, texts, strict=True)):
        mark = ", ".join(marks[name][i] for name in differing if marks[name][i])
        draw_attack(axes, attack, text + (mark and f" ({mark})"), styles[text], unit)
    if certificate is not None:
        draw_violations(axes, comparisons, unit)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=min(0, _lowest(attacks), *([] if certificate is None else [certificate.min_return])))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    episodes = sorted({attack.settings.n_episodes for attack in attacks})
    figure.suptitle(
        f"bars: {_level(attacks)} confidence interval of the mean, {' or '.join(map(str, episodes))} episodes per budget",
        fontsize="small",
    )
    threat = attacks[0].settings.threat
    if any(attack.settings.sensor_sigma is not None for attack in attacks):
        unit_text = SENSOR_UNIT
    else:
        unit_text = norm_unit([] if certificate is None else [certificate], pixels)
    figure.supxlabel(f"{size_name(threat)}: {bound_text(threat)}, {unit_text}", fontsize="medium")
    figure.supylabel("mean return" + ("" if certificate is None else ", certified expected return"), fontsize="medium")
    return figure


def default_labels(attacks: Sequence[AttackResult], *, pixels: bool = False) -> list[str]:
    """
    :param attacks: The attacks
    :param pixels: As for :func:`attack_figure`
    :return: algorithm, environment, noise and attack of each, numbered where they occur more than once
    """
    names = [
        ", ".join(
            [
                printable(settings.algo),
                printable(settings.env_id),
                _noise(settings, pixels),
                printable(settings.attack),
            ]
        )
        for settings in (attack.settings for attack in attacks)
    ]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: position + 1].count(name)})"
        for position, name in enumerate(names)
    ]


def _noise(settings: AttackSettings, pixels: bool) -> str:
    if settings.sensor_sigma is not None:
        return "sigma per sensor"
    return f"sigma {exact(settings.sigma)}" + ("/255" if pixels and settings.sigma else "")


def differing_settings(attacks: Sequence[AttackResult]) -> list[str]:
    """
    :param attacks: The attacks
    :return: in words, which of number of episodes, kind of actions, settings of the attack, keyword arguments and wrappers of
        the environment are not the same for all of them
    """
    # fgsm has no multiplier, and an observation that is no Dict no entries
    return [name for name, texts in _settings(attacks).items() if len(set(texts) - {""}) > 1]


def check_attacks(attacks: Sequence[AttackResult], names: Sequence[str]) -> None:
    """
    :param attacks: The attacks
    :param names: What to call each in the message
    :raises InputError: if there is none, or if they are of different environments or threat models
    """
    if not attacks:
        raise InputError("no attack to draw")
    check_one_environment([attack.settings.env_id for attack in attacks], names, "an attack in")
    threats = [attack.settings.threat for attack in attacks]
    other = next((i for i, threat in enumerate(threats) if threat != threats[0]), None)
    if other is not None:
        raise InputError(
            f"{names[0]} is an attack with the threat model {threats[0]}, {names[other]} with {threats[other]}: their numbers "
            "cannot be on one axis, so plot them one by one"
        )


def _settings(attacks: Sequence[AttackResult]) -> dict[str, list[str]]:
    """What should be alike for a fair comparison: name of the setting, and its text for each attack."""
    settings = [attack.settings for attack in attacks]
    noiseless = [_without_noise(one) for one in settings]
    sigmas = [one.sigma for one in settings]
    return {
        "number of episodes": [f"{one.n_episodes} episodes" for one in settings],
        "actions": ["greedy" if one.deterministic else "sampled" for one in settings],
        "objective": [literal(one.objective) for one in settings],
        "step size": [_step_size(one.step_size) for one in settings],
        "multiplier": [_named("multiplier", one.multiplier) for one in settings],
        "q_threshold": [f"q_threshold {exact(one.q_threshold)}" for one in settings],
        "draws of the noise": [f"eot {one.eot}" for one in settings],
        "spread": [f"spread {exact(one.spread)}" for one in settings],
        "entry": [_named("entry", one.key) for one in settings],
        "env_kwargs": variants("env_kwargs", [kwargs for kwargs, _ in noiseless], sigmas),
        "env_wrappers": variants("env_wrappers", [wrappers for _, wrappers in noiseless], sigmas),
    }


def _without_noise(settings: AttackSettings) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    Keyword arguments and wrappers of the same environment without noise, which has an entry of its own: agents with and
    without it are compared.
    """
    kwargs, wrappers = settings.env_kwargs, dict(settings.env_wrappers)
    if settings.env_id.startswith("camp/"):
        kwargs = {name: value for name, value in kwargs.items() if name != "sigma"}
    entries = wrappers.pop("env_wrapper", None)
    entries = [entry for entry in (entries if isinstance(entries, list) else [entries]) if not _is_noise(entry)]
    return kwargs, {**wrappers, **({"env_wrapper": entries} if entries else {})}


def _is_noise(entry: Any) -> bool:
    name = next(iter(entry), None) if isinstance(entry, dict) else entry
    return name is None or (isinstance(name, str) and is_smoothing_noise(name))


def _named(name: str, value: Any) -> str:
    return "" if value is None else f"{name} {literal(str(value))}"


def _step_size(value: float | None) -> str:
    return "default step size" if value is None else f"step size {exact(value)}"


def _level(attacks: Sequence[AttackResult]) -> str:
    return " or ".join(sorted({f"{100 * attack.confidence:g} %" for attack in attacks}))


def _lowest(attacks: Sequence[AttackResult]) -> float:
    return min(min([one.mean_return, *(one.confidence_interval or ())]) for attack in attacks for one in attack.budgets)


def draw_attack(axes: "Axes", attack: AttackResult, label: str, style: dict[str, str], unit: int) -> None:
    """
    :param axes: Where to draw
    :param attack: The attack
    :param label: For the legend
    :param style: See :func:`sb3_camp.certification.curve_style.curve_styles`
    :param unit: What to divide budgets by
    """
    means = [one.mean_return for one in attack.budgets]
    intervals = [one.confidence_interval or (one.mean_return, one.mean_return) for one in attack.budgets]
    # A skewed interval may, rarely, lie on one side of the mean
    below = [max(0.0, mean - low) for mean, (low, _) in zip(means, intervals, strict=True)]
    above = [max(0.0, high - mean) for mean, (_, high) in zip(means, intervals, strict=True)]
    axes.errorbar(
        [one.budget / unit for one in attack.budgets],
        means,
        yerr=[below, above],
        capsize=3,
        label=shown_label(label),
        clip_on=False,
        **style,  # type: ignore[arg-type]
    )


def draw_violations(axes: "Axes", comparisons: Sequence[Comparison], unit: int) -> None:
    """
    :param axes: Where to mark what contradicts a certificate
    :param comparisons: What came of the comparison of each attack with it
    :param unit: What to divide budgets by
    """
    found = [one for comparison in comparisons for one in comparison.violations]
    if found:
        axes.plot(
            [one.budget / unit for one in found],
            [one.mean_return for one in found],
            linestyle="",
            marker="x",
            markersize=14,
            markeredgewidth=3,
            color=_VIOLATION,
            label="VIOLATION of the certificate",
            zorder=5,
            clip_on=False,
        )
