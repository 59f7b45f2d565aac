"""An import path of the founding API."""

from graftline.optimization.settings import PromptLearningConfig

__all__ = ["PromptLearningConfig"]
