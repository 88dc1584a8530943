"""
Tuning for what is certified: a callback for trainings, and the certified objective of the zoo's ``-optimize``.

The public names load on first use: every start of the zoo comes by here.
"""

from typing import TYPE_CHECKING

from sb3_camp.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from sb3_camp.tuning.callback import CertifiedReturnCallback
    from sb3_camp.tuning.criterion import CertifiedCriterion

__all__ = ["CertifiedCriterion", "CertifiedReturnCallback"]

_HOME_OF = {
    "CertifiedCriterion": "sb3_camp.tuning.criterion",
    "CertifiedReturnCallback": "sb3_camp.tuning.callback",
}

__getattr__ = lazy_imports(globals(), _HOME_OF)
