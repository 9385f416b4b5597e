"""Sphinx's settings. A warning is an error: `nox -s docs`."""

from __future__ import annotations

import safedev
from safedev.launchers import LAUNCHERS, EnvLauncher

project = "safedev"
copyright = "safedev contributors"
release = version = safedev.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"safedev {release}"

myst_enable_extensions = ["deflist", "substitution"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Source", "notes_style")]


def launchers_table() -> str:
    """Return a Markdown table of the launchers, in the order of precedence, from the code itself."""
    head = ["", "launcher", "local rank", "processes on the node", "rank", "all processes", "node", "also required"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for place, row in enumerate(LAUNCHERS, 1):
        if not isinstance(row, EnvLauncher):
            continue
        fields = ("local_rank", "local_world_size", "rank", "world_size", "node_rank", "requires")
        named = (f"[{row.name}]({row.documentation})", *(_names(row.variables(field)) for field in fields))
        lines.append(f"| {place} | {' | '.join(named)} |")
    return "\n".join(lines)


def _names(variables: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in variables)


myst_substitutions = {"launchers": launchers_table()}
