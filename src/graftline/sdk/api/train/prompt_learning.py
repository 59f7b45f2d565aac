"""An import path of the founding API."""

from graftline.optimization.prompt_learning import PromptLearningJob, PromptLearningResult

__all__ = ["PromptLearningJob", "PromptLearningResult"]
