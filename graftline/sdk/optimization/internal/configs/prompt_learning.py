"""Names under which other programs import this."""

from graftline.optimization.settings import PromptLearningConfig

__all__ = ["PromptLearningConfig"]
