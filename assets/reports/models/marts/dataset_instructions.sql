select
    dataset,
    source,
    sum(tasks)::bigint as tasks,
    coalesce(sum(tasks) filter (answer = 'answerable'), 0)::bigint as answerable,
    coalesce(sum(tasks) filter (answer = 'unanswerable'), 0)::bigint as unanswerable,
    coalesce(sum(tasks) filter (answer = 'untried'), 0)::bigint as untried
from {{ ref('stg_instructions') }}
group by all
order by all
