"""The job that brings the whole lineage up to date. https://docs.dagster.io/guides/build/jobs"""

import dagster as dg

lineage_job = dg.define_asset_job("lineage", selection="*")
