select
    task_id,
    dataset,
    language,
    split,
    teacher,
    steps,
    level,
    ending,
    is_verified,
    is_all_general,
    reward
from {{ source('lineage', 'trajectories') }}
