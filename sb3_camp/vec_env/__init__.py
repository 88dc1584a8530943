"""Vector environments of Gymnasium, whose envs step as one array, for trainings with Stable-Baselines3."""

from typing import TYPE_CHECKING

from sb3_camp.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from sb3_camp.vec_env.adapter import NativeVecEnv, native_vec_env
    from sb3_camp.vec_env.zoo_wrapper import native

__all__ = ["NativeVecEnv", "native", "native_vec_env"]

_HOME_OF = {
    "NativeVecEnv": "sb3_camp.vec_env.adapter",
    "native": "sb3_camp.vec_env.zoo_wrapper",
    "native_vec_env": "sb3_camp.vec_env.adapter",
}

__getattr__ = lazy_imports(globals(), _HOME_OF)
