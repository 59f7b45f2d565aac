"""Names under which other programs import this."""

from graftline.prompts.settings import PromptLearningConfig

__all__ = ["PromptLearningConfig"]
