select
    dataset,
    reason,
    count(*) as dropped,
    min(file || ':' || line || ': ' || detail) as example
from {{ ref('stg_drops') }}
group by all
order by all
