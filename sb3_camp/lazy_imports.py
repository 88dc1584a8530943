"""Public names of a package that load on first use, as what they need takes long to import."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_imports(package: dict[str, Any], home_of: Mapping[str, str]) -> Callable[[str], Any]:
    """
    :param package: ``globals()`` of the package; a name that was loaded is kept there
    :param home_of: The module that each name comes from
    :return: the ``__getattr__`` of the package
    """

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        package[name] = value
        return value

    return load
