-- An attempt without a reward says nothing about the teacher: it is counted, and left out of precision and mean.
with attempts as (
    select *, reward is not null as is_valid from {{ ref('stg_trajectories') }}
)

select
    teacher,
    language,
    dataset,
    count(*) as tried,
    count(*) filter (not is_valid) as no_reward,
    count(*) filter (is_verified) as verified,
    count(*) filter (level = 'exact') as exact,
    count(*) filter (is_verified and all_general) as general,
    sum(verified_steps)::bigint as verified_steps,
    round(count(*) filter (is_verified and is_valid) / nullif(count(*) filter (is_valid), 0), 4) as precision,
    round(count(*) filter (level = 'exact' and is_valid) / nullif(count(*) filter (is_valid), 0), 4) as exact_share,
    round(count(*) filter (is_verified and all_general and is_valid) / nullif(count(*) filter (is_valid), 0), 4)
        as general_share,
    round(avg(reward), 4) as mean_reward
from attempts
group by all
order by all
