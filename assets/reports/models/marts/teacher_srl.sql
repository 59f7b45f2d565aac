-- Similarity to the gold action in tenths, of steps of verified attempts and of others.
select
    teacher,
    least(floor(srl * 10) / 10, 0.9) as srl_from,
    count(*) filter (is_verified) as verified,
    count(*) filter (not is_verified) as not_verified
from {{ ref('stg_steps') }}
where srl is not null
group by all
order by all
