"""An import path of the founding API."""

from graftline.evals.job import EvalJob, EvalJobConfig, EvalResult, EvalStatus

__all__ = ["EvalJob", "EvalJobConfig", "EvalResult", "EvalStatus"]
