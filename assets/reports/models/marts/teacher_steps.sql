select
    teacher,
    language,
    action_form,
    verdict,
    count(*) as steps,
    count(*) filter (general) as general,
    round(avg(matches), 2) as mean_matches,
    round(avg(reward), 4) as mean_reward
from {{ ref('stg_steps') }}
group by all
order by all
