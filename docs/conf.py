"""Sphinx's settings. A warning is an error: `nox -s docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util import logging

import safedev
from safedev.launchers import LAUNCHERS, EnvLauncher

if TYPE_CHECKING:
    from sphinx.application import Sphinx

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

FINDINGS = "reference/findings"
HEADINGS = re.compile(r"^### (.+)$", re.MULTILINE)
CODES = set(HEADINGS.findall((Path(__file__).parent / f"{FINDINGS}.md").read_text(encoding="utf-8")))


def link_codes(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Make each code in a message, such as ``[physical-index]``, a link to its heading."""
    for block in tree.findall(nodes.literal_block):
        parts = re.split(r"(?<= )\[([a-z]+(?:-[a-z]+)+)\]", block.astext())
        if block["language"] != "text" or len(parts) == 1:
            continue
        block.clear()
        block.rawsource = ""  # a block whose text is not its source is left alone by the highlighter
        block.append(nodes.Text(parts[0]))
        for code, text in zip(parts[1::2], parts[2::2], strict=True):
            if code not in CODES:
                logging.getLogger(__name__).warning("no heading for [%s]", code, location=block)
            address = f"{app.builder.get_relative_uri(page, FINDINGS)}#{code}"
            block.append(nodes.Text("["))
            block.append(nodes.reference("", code, refuri=address, internal=True))
            block.append(nodes.Text(f"]{text}"))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("doctree-resolved", link_codes)
