"""The code location that the soak loads: that of the checkout, whose sensor of datasets is on; it and that of runs look often."""

import dagster as dg

from orchestration.build import build_definitions
from sensors import dataset_versions, lost_runs

dataset_versions.INTERVAL_S = 2  # five minutes would be the whole of a short soak
lost_runs.INTERVAL_S = 5
defs = build_definitions()
for sensor in defs.sensors or ():
    if sensor.name == "dataset_versions":
        # as a click in the UI; `dagster sensor start` would load all of this a second time
        sensor._default_status = dg.DefaultSensorStatus.RUNNING
