"""What clients can read beside calling tools: meshes, runs, output, events, profiles, transcripts."""

from .addresses import FORMS, TEMPLATES
from .handlers import Resources

__all__ = ["FORMS", "TEMPLATES", "Resources"]
