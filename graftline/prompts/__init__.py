"""Prompt optimization: what a job is asked for, and the job, as the service carries it out."""
