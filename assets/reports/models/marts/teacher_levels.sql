-- Of the valid attempts: how near they came, and whether by actions that leave something free.
with attempts as (
    select
        teacher,
        level,
        is_verified,
        case when steps = 0 then 'none' when all_general then 'general' else 'literal' end as actions,
        count(*) over (partition by teacher) as valid
    from {{ ref('stg_trajectories') }}
    where reward is not null
)

select
    teacher,
    level,
    actions,
    is_verified,
    count(*) as attempts,
    round(count(*) / any_value(valid), 4) as share
from attempts
group by all
order by all
