"""The record of a certificate: what was certified, from which episodes, under which assumptions; and its only reader."""

from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from sb3_camp.certification.certificate_entries import KINDS
from sb3_camp.certification.joint_statement import joint_statement, uncertified_statement
from sb3_camp.certification.recorded_bound import RecordedBound
from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import InputError
from sb3_camp.files import read_json
from sb3_camp.runs.scenario import with_public_names

CERTIFICATE_FORMAT = "sb3_camp-certificate-1"


@dataclass(frozen=True)
class Source:
    """
    A log that episodes of a certificate came from.

    :param path: The log, as it was given on the command line or found in a folder
    :param sha256: SHA-256 of its content
    :param episodes: Number of its episodes
    :param n_envs: Environments that played at once, None if the log does not tell
    :param native_vec_env: Whether they were Gymnasium's native vector environment, None if the log does not tell
    :param q_gap: Statistics of the gap between the two highest action scores, None without them
    """

    path: str
    sha256: str
    episodes: int | None = None
    n_envs: int | None = None
    native_vec_env: bool | None = None
    q_gap: dict[str, Any] | None = None


@dataclass(frozen=True)
class Ceiling:
    """
    Beyond it, so many episodes certify less than half of what even a perfect policy earns above the lowest return.

    :param ratio: In multiples of sigma
    :param radius: In the units of the radii
    """

    ratio: float
    radius: float


@dataclass(frozen=True)
class Quantity:
    """
    What else is certified, for all radii together with the certified return and without more alpha.

    :param kind: ``"probability"`` that the return is at least ``at``; ``"quantile"``: the return that is reached except with
        probability ``at``; ``"cvar"``: the mean return of the worst share ``at`` of the episodes
    :param at: A return, or a share in (0, 1)
    :param certified: Lower bound at each radius of the certificate
    """

    kind: str
    at: float
    certified: list[float]

    @property
    def name(self) -> str:
        """For the header of a table: ``probability_of_150``, ``quantile_0.05``, ``cvar_0.05``."""
        return f"{self.kind}{'_of' if self.kind == 'probability' else ''}_{exact(self.at)}"


@dataclass(frozen=True)
class PerStepBound:
    """
    What is certified against an adversary whose perturbation of each step is bounded, see
    :mod:`sb3_camp.certification.per_step`.

    :param epsilon: The bound in the units of the radii, or a list of one for each number of an observation, in its units
    :param norm: ``"l2"``: of the perturbation of a step; ``"linf"``: of each number
    :param steps: The most steps of an episode
    :param steps_assumed: Whether only whoever made the certificate says so
    :param numbers: How many numbers of an observation may be perturbed, None for l2
    :param radius: The l2 norm over an episode that follows, in the units of the radii
    :param formula: How it follows
    :param certified_return: Lower bound on the expected return at this radius
    :param certified: Lower bounds on the quantities of the certificate, in their order
    :param recorded: The bounds on what was recorded, in their order; empty also in files of versions that left them out
    """

    epsilon: float | list[float]
    norm: str
    steps: int
    steps_assumed: bool
    numbers: int | None
    radius: float
    formula: str
    certified_return: float | None = None
    certified: list[float] = field(default_factory=list)
    recorded: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """
    The content of ``certificate.json``; ``docs/certificate_format.md`` says what each entry means and in which units.

    An entry that may be None is so where nothing tells it, or where the file is of an older version that did not have it.
    """

    env_id: str | None = None
    trained_env_id: str | None = None
    env_kwargs: dict[str, Any] | None = None
    env_wrappers: dict[str, Any] | None = None
    env_versions: dict[str, str] | None = None
    algo: str | None = None
    model: str | None = None
    model_sha256: str | None = None
    timesteps: int | None = None
    deterministic: bool | None = None
    sigma: float
    sigma_assumed: bool | None = None
    pixels: bool | None = None
    sensor_sigma: list[Any] | dict[str, Any] | None = None
    clean_keys: list[str] | None = None
    method: str
    alpha: float
    band_alpha: float | None = None
    looks: list[int] | None = None
    min_return: float
    min_return_basis: str | None = None
    min_return_slope: list[float] | None = None
    support: list[float] | None = None
    independence_assumed: bool | None = None
    n_episodes: int
    longest_episode: int | None = None
    step_limit: int | None = None
    mean_return: float
    radii: list[float]
    certified_return: list[float]
    quantities: list[Quantity] = field(default_factory=list)
    per_step: PerStepBound | None = None
    recorded: list[RecordedBound] = field(default_factory=list)
    recorded_keys: list[str] | None = None
    ceiling: Ceiling | None = None
    targets: dict[str, float | None] = field(default_factory=dict)
    sources: list[Source]
    versions: dict[str, Any] = field(default_factory=dict)

    @property
    def level(self) -> float:
        """The alpha of the band of the returns: the part of ``alpha`` that recorded entries and other looks have left it."""
        return self.alpha if self.band_alpha is None else self.band_alpha

    @property
    def is_shared(self) -> bool:
        """Whether ``alpha`` is shared by several bands or looks."""
        return bool(self.recorded) or self.looks is not None

    @property
    def uncertified_keys(self) -> list[str]:
        """What the episodes recorded, where none of it is certified."""
        return [] if self.recorded else self.recorded_keys or []

    @property
    def holds_together(self) -> str:
        """What holds together, and what of the same episodes does not, in words."""
        return f"{joint_statement(self.alpha)} {uncertified_statement(self.alpha, self.uncertified_keys)}".strip()

    def value_at(self, radius: float) -> float | None:
        """
        The certified return at any radius: the value at the next radius of the certificate, which holds for all smaller ones.

        :param radius: l2 radius in the units of the observations
        :return: the certified return, None beyond the last radius of the certificate
        """
        index = self.index_at(radius)
        return None if index is None else self.certified_return[index]

    def index_at(self, radius: float) -> int | None:
        """
        :param radius: l2 radius in the units of the observations
        :return: where in ``radii`` that radius stands whose bounds hold at this one, None beyond the last
        """
        index = int(np.searchsorted(self.radii, radius, side="left"))
        return index if index < len(self.radii) else None

    def as_json(self) -> dict[str, Any]:
        """
        :return: what ``certificate.json`` holds
        """
        content: dict[str, Any] = {"format": CERTIFICATE_FORMAT}
        for name, value in asdict(self).items():
            if name == "ceiling":
                content["radii_over_255"] = [radius / 255 for radius in self.radii] if self.pixels else None
            content[name] = value
            if name == "looks":
                content["holds_together"] = self.holds_together
        for source in content["sources"]:
            if source["q_gap"] is None:
                del source["q_gap"]
        return content


def read_certificate(path: str | Path) -> Certificate:
    """
    :param path: A ``certificate.json``, also one of an older version. Entries that this version does not know are left out
    :return: its content
    :raises InputError: if it cannot be read or is not a sound certificate
    """
    path = Path(path)
    return parse_certificate(read_json(path), str(path))


def parse_certificate(content: Any, path: str) -> Certificate:
    """
    :param content: What a ``certificate.json`` holds
    :param path: Where it stands, for messages
    :return: the certificate
    :raises InputError: if it is not a sound certificate
    """
    if not isinstance(content, dict) or content.get("format") != CERTIFICATE_FORMAT:
        raise InputError(f"{path}: not a certificate of the format {CERTIFICATE_FORMAT}")
    values: dict[str, Any] = {}
    for entry in fields(Certificate):
        kind = KINDS[entry.name]
        required = entry.default is MISSING and entry.default_factory is MISSING
        if entry.name not in content and not required:
            continue
        value = content.get(entry.name)
        if not (kind.holds(value) or (value is None and entry.default is None)):
            null = " or null" if entry.default is None else ""
            raise InputError(f"{path}: {entry.name} must be {kind.text}{null}, not {_short(value)}")
        values[entry.name] = value
    _check_curve(path, values)
    if values.get("env_wrappers") is not None:
        values["env_wrappers"] = with_public_names(values["env_wrappers"], path)
    if values.get("ceiling") is not None:
        values["ceiling"] = Ceiling(values["ceiling"]["ratio"], values["ceiling"]["radius"])
    if values.get("per_step") is not None:
        known = [one.name for one in fields(PerStepBound)]
        values["per_step"] = PerStepBound(**{key: values["per_step"][key] for key in known if key in values["per_step"]})
    values["quantities"] = [Quantity(one["kind"], one["at"], one["certified"]) for one in values.get("quantities", [])]
    for name, kind_of in (("recorded", RecordedBound), ("sources", Source)):
        known = [entry.name for entry in fields(kind_of)]
        values[name] = [kind_of(**{key: one[key] for key in known if key in one}) for one in values.get(name, [])]
    return Certificate(**values)


def _check_curve(path: str, values: dict[str, Any]) -> None:
    radii, curve = values["radii"], np.array(values["certified_return"])
    if not radii or len(radii) != len(curve) or any(np.diff(radii) <= 0):
        raise InputError(f"{path}: radii must ascend and have one certified_return each")
    if radii[0] < 0 or any(np.diff(curve) > 1e-9 * np.abs(curve).max()):  # rounding
        raise InputError(f"{path}: radii must be at least 0, and certified_return must not rise with them")
    for entry in ("quantities", "recorded"):
        if any(len(one["certified"]) != len(radii) for one in values.get(entry, ())):
            raise InputError(f"{path}: {entry} must have one number certified for each of radii")
    per_step = values.get("per_step") or {"certified": values.get("quantities", ())}
    for entry, numbers in (("quantities", per_step["certified"]), ("recorded", per_step.get("recorded", []))):
        if len(numbers) != len(values.get(entry, ())) and (entry == "quantities" or numbers):
            raise InputError(f"{path}: per_step must have one number for each of {entry}")
    for name, sound in (
        ("sigma", values["sigma"] > 0),
        ("alpha", 0 < values["alpha"] < 1),
        ("band_alpha", values.get("band_alpha") is None or 0 < values["band_alpha"] <= values["alpha"]),
        ("n_episodes", values["n_episodes"] >= 1),
    ):
        if not sound:
            raise InputError(f"{path}: {name} cannot be {values[name]}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
