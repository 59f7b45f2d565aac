"""Dagster resources, one a system: what is configured of it, and what opens it in the run that first needs it.

`resources.systems` has those that a manifest wires, `resources.artifacts` the one that every stage needs,
`resources.warehouse` and `resources.dbt` those of the reports.
"""
