-- Only over tasks that every teacher attempted: else the one with the easier tasks looks better. Empty for one teacher.
with attempts as (
    select *, reward is not null as is_valid from {{ ref('stg_trajectories') }}
),

common as (
    select task_id
    from attempts
    where is_valid
    group by task_id
    having count(distinct teacher) = (select count(distinct teacher) from attempts)
        and count(distinct teacher) > 1
)

select
    teacher,
    language,
    count(distinct task_id) as tasks,
    count(*) as attempts,
    count(distinct task_id) filter (is_verified) as verified_tasks,
    round(count(distinct task_id) filter (is_verified) / count(distinct task_id), 4) as solved,
    round(count(*) filter (is_verified) / count(*), 4) as precision,
    sum(verified_steps)::bigint as verified_steps,
    sum(prompt_tokens)::bigint as prompt_tokens,
    sum(completion_tokens)::bigint as completion_tokens,
    round(sum(completion_tokens) / nullif(sum(verified_steps), 0), 1) as tokens_per_verified_step,
    round(sum(cost_usd), 6) as cost_usd,
    round(sum(cost_usd) / nullif(sum(verified_steps), 0), 6) as usd_per_verified_step,
    round(quantile_cont(latency_s, 0.5), 3) as latency_p50_s,
    round(quantile_cont(latency_s, 0.9), 3) as latency_p90_s
from attempts
where is_valid and task_id in (select task_id from common)
group by all
order by language, teacher
