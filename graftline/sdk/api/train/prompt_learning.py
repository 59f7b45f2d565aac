"""Names under which other programs import this."""

from graftline.prompts.prompt_learning import PromptLearningJob, PromptLearningResult

__all__ = ["PromptLearningJob", "PromptLearningResult"]
