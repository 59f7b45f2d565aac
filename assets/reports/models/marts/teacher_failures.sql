with attempts as (
    select *, count(*) over (partition by teacher, language) as tried from {{ ref('stg_trajectories') }}
)

select
    teacher,
    language,
    failure,
    ending,
    level,
    count(*) as attempts,
    round(count(*) / any_value(tried), 4) as share_of_tried
from attempts
where not is_verified
group by all
order by all
