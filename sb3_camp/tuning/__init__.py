"""
Tuning for what is certified: a callback for trainings, and the certified objective of the zoo's ``-optimize``.

The public names load on first use: every start of the zoo comes by here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sb3_camp.tuning.callback import CertifiedReturnCallback
    from sb3_camp.tuning.criterion import CertifiedCriterion

__all__ = ["CertifiedCriterion", "CertifiedReturnCallback"]

_HOME_OF = {
    "CertifiedCriterion": "sb3_camp.tuning.criterion",
    "CertifiedReturnCallback": "sb3_camp.tuning.callback",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
