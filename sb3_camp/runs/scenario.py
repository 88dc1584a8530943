"""A scenario: the environment that episodes are played in, its wrappers and the smoothing noise."""

import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sb3_camp.errors import InputError
from sb3_camp.runs.layers import (
    NOISE_WRAPPER,
    NORMALIZATION_WRAPPER,
    Layer,
    Shows,
    is_frozen_normalization,
    is_smoothing_noise,
    layer_of_entry,
)
from sb3_camp.runs.noise_placement import SmoothingNoise, smoothing_noise
from sb3_camp.runs.zoo_yaml import keywords
from sb3_camp.tasks import default_sigma
from sb3_camp.wrappers.observation_noise import Sigma, plain_sigma, sigma_entries

WRAPPER_KEYS = ("env_wrapper", "vec_env_wrapper", "frame_stack")
"""The zoo's hyperparameters that wrap an environment and that an evaluation builds again."""

SCENARIO_KEYS = ("env_id", "sigma", "sensor_sigma", "clean_keys", "env_kwargs", "env_wrappers")
"""What identifies the scenario of episodes, by the names that evaluations, certificates and attacks give it."""

_NOISE = f"sb3_camp.wrappers.{NOISE_WRAPPER}"
_NORMALIZATION = f"sb3_camp.wrappers.{NORMALIZATION_WRAPPER}"
# How a training steps its envs, which makes no other environment of them
_NATIVE = "sb3_camp.vec_env.native"
_ScenarioT = TypeVar("_ScenarioT", bound="Scenario")


def takes_sigma(env_id: str) -> bool:
    """
    Whether the noise of an environment is set by its keyword ``sigma``.

    :param env_id: id of an environment, as Gymnasium registers it
    :return: whether it is a task of this package. What another environment does with a keyword of this name is not known
    """
    return default_sigma(env_id) is not None


def wrapper_entries(settings: Mapping[str, Any], where: str = "") -> list[tuple[str, Any]]:
    """
    :param settings: hyperparameters of the zoo
    :param where: their file, in front of the message
    :return: full class name and keyword arguments of each wrapper, the innermost first
    :raises InputError: if an entry is neither a name nor one name with arguments
    """
    wrappers = []
    for key in ("env_wrapper", "vec_env_wrapper"):
        for entry in _as_list(settings.get(key)):
            ((name, kwargs),) = entry.items() if isinstance(entry, dict) and len(entry) == 1 else [(entry, {})]
            if not isinstance(name, str):
                text = reprlib.repr(entry)
                raise InputError(f"{_prefix(where)}{key}: {text} is neither a wrapper's name nor one name with arguments")
            wrappers.append((name, kwargs))
    return wrappers


def with_public_names(wrappers: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """
    :param wrappers: wrappers as in the zoo's hyperparameters
    :param where: their file, in front of the message
    :return: the same, with the noise of this package under its public name, whichever module a file names it by: the first
        version named another one, and the same wrappers must be found to be the same
    :raises InputError: if an entry is neither a name nor one name with arguments
    """
    if not any(is_smoothing_noise(name) for name, _ in wrapper_entries(wrappers, where)):
        return dict(wrappers)
    renamed = {}
    for key in ("env_wrapper", "vec_env_wrapper"):
        if wrappers.get(key) is not None:
            entries = zip(_as_list(wrappers[key]), wrapper_entries({key: wrappers[key]}, where), strict=True)
            renamed[key] = [{_NOISE: kwargs} if is_smoothing_noise(name) else entry for entry, (name, kwargs) in entries]
    return {**wrappers, **renamed}


def noise_layer(name: str, kwargs: Any, what: str, where: str = "") -> Layer:
    """
    :param name: name of the layer
    :param kwargs: keyword arguments of smoothing noise, from a file
    :param what: whose they are, for messages
    :param where: the file, in front of messages
    :return: the noise as a layer. An entry without noise is known here only if it is named, or if its sigma is 0
    :raises InputError: if the arguments cannot be those of smoothing noise
    """
    given = kwargs.get("sigma") if isinstance(kwargs, Mapping) else None
    keys = kwargs.get("clean_keys", ()) if isinstance(kwargs, Mapping) else ()
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise InputError(f"{_prefix(where)}clean_keys of {what} must be a list of texts, not {reprlib.repr(keys)}")
    if isinstance(given, list | tuple | Mapping):
        values, silent = sigma_entries(given)
        if not values or not all(_is_sigma(value) for value in values) or not any(values):
            text = reprlib.repr(given)
            raise InputError(f"{_prefix(where)}the sigma of {what} must be numbers that are at least 0, not all 0: {text}")
        return Layer(name, Shows.NOISY, 1.0, tuple(sorted({*keys, *silent})), plain_sigma(given))
    if given is None or not _is_sigma(given):
        text = reprlib.repr(given)
        raise InputError(f"{_prefix(where)}the sigma of {what} must be a number that is at least 0, not {text}")
    return Layer(name, Shows.NOISY, float(given), tuple(sorted(set(keys))))


def _is_sigma(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


@dataclass(frozen=True)
class Scenario:
    """
    What episodes are played in, by its configuration.

    :param env_id: Id of the environment, as Gymnasium registers it
    :param env_kwargs: Keyword arguments of the environment
    :param wrappers: ``env_wrapper``, ``vec_env_wrapper``, ``frame_stack`` and ``normalize`` as in the zoo's hyperparameters
    """

    env_id: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entries = self.wrappers.get("vec_env_wrapper")
        listed = entries if isinstance(entries, list) else [entries]
        kept = [entry for entry in listed if entry not in (_NATIVE, {_NATIVE: {}}, {_NATIVE: None})]
        if len(kept) < len(listed):
            others = {key: value for key, value in self.wrappers.items() if key != "vec_env_wrapper"}
            object.__setattr__(self, "wrappers", others | ({"vec_env_wrapper": kept} if kept else {}))

    def layers(self, where: str = "") -> list[Layer]:
        """
        The layers between the environment and the policy as the configuration has them, the innermost first. What the
        environment consists of is not seen here, except the noise of the tasks of this package.

        :param where: the file of the configuration, in front of messages
        :raises InputError: if the configuration cannot be read
        """
        layers = []
        default = default_sigma(self.env_id)
        if default is not None:
            task = {"sigma": self.env_kwargs.get("sigma", default)}
            layers.append(noise_layer(self.env_id, task, f"env_kwargs of {self.env_id}", where))
        for name, kwargs in wrapper_entries(self.wrappers, where):
            if is_smoothing_noise(name):
                layers.append(noise_layer(NOISE_WRAPPER, kwargs, f"{NOISE_WRAPPER} in env_wrapper", where))
            else:
                layers.append(layer_of_entry(name, kwargs))
        if (normalize := self.normalizes()) is not None:
            layers.append(Layer("normalize", normalize))
        if self.wrappers.get("frame_stack"):
            layers.append(Layer("frame_stack", Shows.STACK))
        return layers

    def normalizes(self) -> Shows | None:
        """
        :return: what the zoo's ``normalize`` shows of the observations while it evaluates and plays, when its statistics are
            frozen; None without it
        """
        normalize = self.wrappers.get("normalize")
        if normalize is None or normalize is False:
            return None
        if isinstance(normalize, str):
            normalize = keywords(normalize)
        keeps_observations = isinstance(normalize, Mapping) and normalize.get("norm_obs") is False
        return Shows.SAME if keeps_observations else Shows.FUNCTION

    def configured_noise(self, where: str = "", *, unknown_were_checked: bool = False) -> SmoothingNoise | None:
        """
        The smoothing noise by the configuration, see :func:`sb3_camp.runs.noise_placement.smoothing_noise`.

        :param where: the file of the configuration, in front of messages
        :param unknown_were_checked: whether wrappers that nothing is known of were checked in a live environment
        :return: the noise, None if there is none
        :raises InputError: if it cannot carry a certificate
        """
        return smoothing_noise(self.layers(where), where, unknown_were_checked=unknown_were_checked)

    def with_noise(self: _ScenarioT, sigma: Sigma) -> _ScenarioT:
        """
        :param sigma: Standard deviation of the noise
        :return: The same with this smoothing noise: that of the task if it takes a ``sigma``, that in ``env_wrapper`` if there
            is one, otherwise a new one outside of ``env_wrapper`` and inside of the frame stack
        """
        if takes_sigma(self.env_id):
            return replace(self, env_kwargs={**self.env_kwargs, "sigma": sigma})
        env_wrapper = noisy_wrappers(self.wrappers.get("env_wrapper"), sigma)
        return replace(self, wrappers={**self.wrappers, "env_wrapper": env_wrapper})

    def with_outermost_noise(self: _ScenarioT, sigma: Sigma) -> _ScenarioT:
        """
        :param sigma: Standard deviation of the noise
        :return: The same with a smoothing noise outside of all of ``env_wrapper`` and inside of the frame stack
        """
        env_wrapper = [*_as_list(self.wrappers.get("env_wrapper")), {_NOISE: {"sigma": sigma}}]
        return replace(self, wrappers={**self.wrappers, "env_wrapper": env_wrapper})

    def with_normalization(self: _ScenarioT, arguments: Mapping[str, Any]) -> _ScenarioT:
        """
        :param arguments: of :class:`sb3_camp.wrappers.FrozenNormalizeObservation`
        :return: The same with this normaliser, outside of ``env_wrapper`` (and of the noise that is there) and inside of the
            frame stack, where the zoo has its VecNormalize. It takes the place of ``normalize``
        :raises InputError: if ``vec_env_wrapper``, which then is outside of it instead of inside, changes observations
        """
        wrappers = {key: value for key, value in self.wrappers.items() if key != "normalize"}
        for name, kwargs in wrapper_entries({"vec_env_wrapper": wrappers.get("vec_env_wrapper")}):
            if layer_of_entry(name, kwargs).shows is not Shows.SAME:
                raise InputError(f"vec_env_wrapper: {name} between the environment and VecNormalize is not supported")
        entries = _as_list(wrappers.get("env_wrapper"))
        return replace(self, wrappers={**wrappers, "env_wrapper": [*entries, {_NORMALIZATION: dict(arguments)}]})

    def noise_is_on_normalized(self) -> bool:
        """
        :return: whether the noise is outside of a frozen normaliser, so that sigma and radius are in standard deviations
        """
        names = [name for name, _ in wrapper_entries({"env_wrapper": self.wrappers.get("env_wrapper")})]
        normalized = next((i for i, name in enumerate(names) if is_frozen_normalization(name)), len(names))
        return any(is_smoothing_noise(name) for name in names[normalized:])


def without_sigma(entry: Any, sigma: float) -> Any:
    """
    :param entry: ``env_kwargs`` or ``env_wrappers`` of a scenario, a certificate or an attack
    :param sigma: its sigma
    :return: the same without this sigma, to compare what differs in it; another ``sigma`` in it stays
    """
    if isinstance(entry, Mapping):
        items = entry.items()
        return {name: without_sigma(value, sigma) for name, value in items if name != "sigma" or value != sigma}
    return [without_sigma(value, sigma) for value in entry] if isinstance(entry, list) else entry


def noisy_wrappers(env_wrapper: Any, sigma: Sigma) -> list[Any]:
    """
    :param env_wrapper: the zoo's hyperparameter
    :param sigma: standard deviation of the noise
    :return: the same with this noise: that which is there, or a new one outside of the others
    """
    entries = _as_list(env_wrapper)
    named = wrapper_entries({"env_wrapper": env_wrapper})
    noisy = [
        {name: {**(kwargs or {}), "sigma": sigma}} if is_smoothing_noise(name) else entry
        for entry, (name, kwargs) in zip(entries, named, strict=True)
    ]
    return noisy if any(is_smoothing_noise(name) for name, _ in named) else [*noisy, {_NOISE: {"sigma": sigma}}]


def _as_list(entries: Any) -> list[Any]:
    return entries if isinstance(entries, list) else [] if entries is None else [entries]


def _prefix(where: str) -> str:
    return f"{where}: " if where else ""
