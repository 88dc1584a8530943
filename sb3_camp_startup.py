"""
Makes the stock RL Zoo know the algorithms of ``sb3_camp``, without an edit of the zoo and without a flag.

Every interpreter start runs :func:`install` (see ``build_hook.py``), so this module imports nothing but ``sys`` and does next
to nothing: it waits for three modules of the zoo, and only when one of them is imported does it call
``sb3_camp.zoo.registration``.
"""

import sys

TYPE_CHECKING = False  # as in `typing`, whose import alone would cost more than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

ZOO_MODULES = ("rl_zoo3.utils", "rl_zoo3.hyperparams_opt", "rl_zoo3.exp_manager")


def install() -> None:
    """Put the finder in place, once."""
    if not any(isinstance(finder, ZooFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, ZooFinder())


class ZooFinder:
    """Meta-path finder that leaves the finding to the others and extends the zoo's modules after they are loaded."""

    def __init__(self) -> None:
        self.searching: set[str] = set()

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        # A second call for the same name comes from another finder that delegates as this one does.
        if fullname not in ZOO_MODULES or fullname in self.searching:
            return None
        self.searching.add(fullname)
        try:
            spec = self._ask_other_finders(fullname, path, target)
        finally:
            self.searching.discard(fullname)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = ExtendingLoader(spec.loader, self)  # type: ignore[assignment]
        return spec

    def _ask_other_finders(
        self, fullname: str, path: "Sequence[str] | None", target: "ModuleType | None"
    ) -> "ModuleSpec | None":
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def extend(self, module: "ModuleType") -> None:
        """Let ``sb3_camp`` extend a module of the zoo; a failure is a warning, and the zoo goes on as it is."""
        if self not in sys.meta_path:  # an earlier module failed: one warning is enough
            return
        try:
            from sb3_camp.zoo.registration import extend

            extend(module)
        except Exception as error:
            sys.meta_path.remove(self)
            import warnings

            reason = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"sb3_camp could not add its algorithms to the RL Zoo, which goes on without them ({reason})",
                RuntimeWarning,
                stacklevel=2,
            )


class ExtendingLoader:
    """Loads a module with its own loader, then extends it. The module keeps no trace of this class."""

    def __init__(self, loader: "Any", finder: ZooFinder) -> None:
        self.loader = loader
        self.finder = finder

    def __getattr__(self, name: str) -> "Any":
        if name == "loader":  # not set yet, as while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        return self.loader.create_module(spec)

    def exec_module(self, module: "ModuleType") -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.finder.extend(module)
