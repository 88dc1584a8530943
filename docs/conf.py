"""Configuration of the documentation site, built by ``make docs``."""

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "site"), str(HERE.parent)]

import sb3_camp  # noqa: E402

project = "sb3_camp"
author = "the authors of sb3_camp"
version = release = sb3_camp.__version__

extensions = [
    "sphinx.ext.autodoc",
    "myst_nb",
    "command_options",
    "mathml",
    "repository_pages",
]
exclude_patterns = ["_build", "site", "**.ipynb_checkpoints"]
suppress_warnings = ["config.cache"]

# Pages are Markdown that GitHub shows too; anchors of headings are those of GitHub
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
# What stands outside of docs/ and is a page of the site as well
repository_pages = {
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "experiments": "zoo_scripts/experiments/README.md",
    "security": "SECURITY.md",
    "versioning": "VERSIONING.md",
}
repository_links = {"README.md": "getting_started"}

# Notebooks run when the site is built. `make docs` keeps their results until they change
nb_execution_mode = "cache"
nb_execution_timeout = 1200
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

# The API from docstrings, in the order of the source, with types from the annotations
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
for file in Path(sb3_camp.__file__).parent.rglob("__init__.py"):
    package = import_module(".".join(("sb3_camp", *file.parent.relative_to(Path(sb3_camp.__file__).parent).parts)))
    for name in getattr(package, "__all__", ()):  # they load on first use, and autodoc asks dir()
        getattr(package, name)

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"sb3_camp {release}"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
smartquotes = False  # --option is no dash
html_theme_options = {
    "light_css_variables": {
        "font-stack": "system-ui, sans-serif",
        "color-brand-primary": "#005a8f",
        "color-brand-content": "#005a8f",
    },
}
