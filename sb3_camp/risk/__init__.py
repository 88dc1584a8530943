"""Training for the certificate: the certified return is a distortion risk measure of the return, the Wang transform."""

from typing import TYPE_CHECKING

from sb3_camp.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from sb3_camp.risk.callback import WangTransformCallback
    from sb3_camp.risk.wang_transform import episode_weights, wang_distortion

__all__ = ["WangTransformCallback", "episode_weights", "wang_distortion"]

_HOME_OF = {
    "WangTransformCallback": "sb3_camp.risk.callback",
    "episode_weights": "sb3_camp.risk.wang_transform",
    "wang_distortion": "sb3_camp.risk.wang_transform",
}

__getattr__ = lazy_imports(globals(), _HOME_OF)
