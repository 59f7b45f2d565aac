-- Of the valid attempts: how near they came, and whether by actions that leave something free.
select
    teacher,
    language,
    instruction_source,
    level,
    case when steps = 0 then 'none' when all_general then 'general' else 'literal' end as actions,
    is_verified,
    count(*) as attempts
from {{ ref('stg_trajectories') }}
where reward is not null
group by all
order by all
