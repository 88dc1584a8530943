"""
Build step that puts two start-up files beside the package, at the root of site-packages.

Both call ``sb3_camp_startup.install`` at interpreter start. Python up to 3.14 reads ``sb3_camp.pth``; from 3.15 on
``sb3_camp.start`` (PEP 829) takes its place. Both are ordinary files of the wheel, listed in its RECORD, so that
``pip uninstall`` removes them.
"""

from pathlib import Path

from setuptools.command.build_py import build_py

START_UP_FILES = {
    # One line, as ``site`` wants it. The guard keeps an interpreter silent if the module is missing (a broken uninstall).
    "sb3_camp.pth": (
        'import sys; exec("try:\\n from sb3_camp_startup import install\\nexcept ImportError:\\n pass\\nelse:\\n install()")\n'
    ),
    "sb3_camp.start": "sb3_camp_startup:install\n",
}


class BuildPyWithStartUpFiles(build_py):
    """``build_py`` that also writes :data:`START_UP_FILES`."""

    def run(self) -> None:
        super().run()
        # In editable mode nothing is copied from build_lib: what install_lib holds goes into the editable wheel.
        target = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        folder = Path(target)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in START_UP_FILES.items():
            (folder / name).write_text(text, encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        if self.editable_mode:
            return outputs
        return outputs + [str(Path(self.build_lib) / name) for name in START_UP_FILES]
