-- How often actions change foreign code: places per 100,000 characters, up to so many; null is more than 100.
with steps as (
    select
        teacher,
        case when general then 'general' else 'literal' end as actions,
        case
            when over_out = 0 then 0
            when over_out <= 1 then 1
            when over_out <= 3 then 3
            when over_out <= 10 then 10
            when over_out <= 30 then 30
            when over_out <= 100 then 100
        end as up_to
    from {{ ref('stg_steps') }}
    where over_out is not null
)

select teacher, actions, up_to, count(*) as steps
from steps
group by all
order by all
