select teacher, language, ending, level, count(*) as attempts
from {{ ref('stg_trajectories') }}
where not is_verified
group by all
order by all
