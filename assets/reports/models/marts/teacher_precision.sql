-- An attempt without a reward says nothing about the teacher: it is counted, and left out of precision and mean.
with attempts as (
    select *, reward is not null as is_valid from {{ ref('stg_trajectories') }}
)

select
    teacher,
    language,
    instruction_source,
    dataset,
    count(*) filter (is_valid) as valid,
    count(*) filter (is_verified and is_valid) as verified,
    round(count(*) filter (is_verified and is_valid) / nullif(count(*) filter (is_valid), 0), 4) as precision,
    count(*) filter (is_verified and is_valid and all_general) as general,
    sum(verified_steps)::bigint as verified_steps,
    round(avg(reward), 4) as mean_reward,
    count(*) filter (not is_valid) as no_reward,
    round(sum(cost_usd), 6) as cost_usd
from attempts
group by all
order by all
