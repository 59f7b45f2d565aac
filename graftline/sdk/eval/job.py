"""Names under which other programs import this."""

from graftline.evals.job import EvalJob, EvalJobConfig, EvalResult, EvalStatus

__all__ = ["EvalJob", "EvalJobConfig", "EvalResult", "EvalStatus"]
