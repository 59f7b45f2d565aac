select
    task_id,
    dataset,
    language,
    split,
    teacher,
    steps,
    ending,
    failure,
    format_ok,
    level,
    all_general,
    is_verified,
    reward
from {{ source('lineage', 'trajectories') }}
