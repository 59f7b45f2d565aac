{{ config(meta={'description': 'No attempt of a teacher at a task stands there twice.'}) }}
select task_id, split, teacher, attempt
from {{ ref('stg_trajectories') }}
group by all
having count(*) > 1
