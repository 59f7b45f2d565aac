select
    task_id,
    language,
    split,
    teacher,
    action_form,
    verdict,
    matches,
    is_general,
    reward
from {{ source('lineage', 'steps') }}
